"""The UI in a browser: a server of pages, and runs that outlive them."""
