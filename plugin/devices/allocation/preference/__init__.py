"""Which of the free devices a container should get, from a topology that was taken before. Pure.

The rule is that of NVIDIA's best-effort policy: divide all free GPUs into groups of the size that is asked for, so that
the groups score most together, and give the best of these groups. So a pod does not take the GPUs whose loss would cost
the next pods more than it gains. Three searches find the division: `masks` (exact, few GPUs), `branches` (exact, many
GPUs whose scores form a tree) and `rough` (bounded, for the rest).
"""
