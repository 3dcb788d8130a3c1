"""Pages of the weather: series with their forecasts, hosts, and the weather service."""
