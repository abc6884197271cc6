"""A cluster with an S3 gateway, as processes, for the tests of the gateway."""

from cluster import Cluster

KEY = "sanderling"


class Fleet(Cluster):
    """A namenode, datanodes and a gateway. Everything ends with `stop`."""

    def __init__(self, datanodes: int = 2, dram: str = "192MiB", flags: tuple[str, ...] = (),
                 node_flags: tuple[str, ...] = ()) -> None:
        self.gateway_flags = flags
        super().__init__(datanodes, dram, node_flags=node_flags)

    def started(self) -> None:
        self.address = self.start_gateway("gateway", *self.gateway_flags)
        self.endpoint = f"http://{self.address}"

    def start_gateway(self, name: str, *flags: str) -> str:
        """Starts a gateway and returns its address."""
        ready = self.start(name, "gateway", "s3", "--listen", "127.0.0.1:0", "--http",
                           "127.0.0.1:0", *flags)
        self.http_address = str(ready["http_address"])
        return str(ready["address"])

    def client_environment(self) -> dict[str, str]:
        """Returns what clients find their way and their keys by."""
        return self.environment() | {
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": KEY,
            "AWS_REGION": "us-east-1",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": self.endpoint,
            "S3_ENDPOINT_URL": self.endpoint,
            "AWS_EC2_METADATA_DISABLED": "true",
            "HOME": str(self.directory),
        }
