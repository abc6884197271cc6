"""The main job: TPC-DS queries over a store whose nodes are preempted, every result checked."""
