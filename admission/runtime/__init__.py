"""The asyncio shell around the core: owns clock, timers and journal; decides nothing."""
