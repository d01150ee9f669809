"""A store in a PostgreSQL database, which any number of hubs share."""
