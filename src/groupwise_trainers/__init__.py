"""The objectives inside other trainers: `groupwise_trainers.trl`, `.verl` and `.skyrl`. Each needs its own library."""
