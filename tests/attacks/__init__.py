"""What somebody hostile, or an unlucky hour, does to the promises: each attack as a test."""
