"""The stack in containers: what docker-compose.yml runs before and beside the parts."""
