"""Screens of the app, and the dialogs that they open."""
