"""The main job: TPC-DS queries over the store while its nodes are preempted, every result checked."""
