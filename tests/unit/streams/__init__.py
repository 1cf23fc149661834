"""Event hubs below the gateways."""
