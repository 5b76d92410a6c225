"""Has pods leave in other ways than by the Eviction API: replaced first by their owner, or by an EvictionRequest."""
