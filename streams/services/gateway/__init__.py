"""The HTTP gateway: agents, verifiers and operators that speak no Kafka write their facts here."""
