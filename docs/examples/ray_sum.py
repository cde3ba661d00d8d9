"""A driver of Ray: squares are computed where there is a free CPU of the cluster."""

import ray

ray.init()  # the cluster is RAY_ADDRESS


@ray.remote
def square(number: int) -> int:
    return number * number


print("sum of squares", sum(ray.get([square.remote(number) for number in range(10)])))
