"""A store in a PostgreSQL database, which several gateways share."""
