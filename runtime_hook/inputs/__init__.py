"""What the hook is told: by the runtime, by the engine, and by its own settings."""
