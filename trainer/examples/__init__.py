"""Small programs, each about one thing: the tours, and `placement`."""
