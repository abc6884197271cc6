"""States of torch that the tests of checkpoints save, and how two of them are compared."""

import torch

DTYPES = (
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.int64,
    torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool, torch.complex64,
    torch.complex128,
)
SMALL = 700


def bits(generator: torch.Generator, sizes: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Returns a tensor of random bits: also those that are no numbers."""
    count = torch.empty(sizes, dtype=dtype).nbytes
    found = torch.randint(0, 256, (count,), dtype=torch.uint8, generator=generator)
    if dtype == torch.bool:
        found = found % 2
    return found.view(dtype).reshape(sizes)


def state(seed: int = 1) -> dict[str, object]:
    """Returns a state of every kind of tensor, and of what is none."""
    generator = torch.Generator().manual_seed(seed)
    made: dict[str, object] = {
        str(dtype): bits(generator, (33, 129), dtype) for dtype in DTYPES
    }
    made["scalar"] = torch.tensor(3.5 + seed)
    made["scalar of bfloat16"] = torch.tensor(float(seed), dtype=torch.bfloat16)
    made["empty"] = torch.empty(0, 5)
    made["transposed"] = bits(generator, (50, 70), torch.float32).t()
    made["slice"] = bits(generator, (100, 100), torch.int64)[::3, 5:50]
    made["conjugate"] = torch.randn(20, 3, dtype=torch.complex64, generator=generator).conj()
    made["expanded"] = torch.tensor([1.0 + seed]).expand(5)
    made["parameter"] = torch.nn.Parameter(torch.randn(7, 5, generator=generator))
    made["large"] = bits(generator, (3, 1 << 20), torch.float32)
    made["small"] = {f"{n}": bits(generator, (n % 40,), torch.float32) for n in range(SMALL)}
    made["step"] = 100 + seed
    made["text"] = {"deep": ["x" * 1000, None, {"seed": seed}]}
    return made


def blank(given: object) -> object:
    """Returns a state of the same shapes with other content, to load into."""
    if isinstance(given, dict):
        return {key: blank(value) for key, value in given.items()}
    if isinstance(given, list):
        return [blank(value) for value in given]
    if isinstance(given, torch.Tensor):
        return torch.zeros_like(given.detach()).contiguous()
    return None


def differences(one: object, other: object, name: str = "state") -> list[str]:
    """Returns the names of what is not equal bit by bit."""
    if isinstance(one, dict) and isinstance(other, dict):
        if one.keys() != other.keys():
            return [f"{name}: other keys"]
        return [found for key in one
                for found in differences(one[key], other[key], f"{name}.{key}")]
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        same = one.dtype == other.dtype and one.size() == other.size()
        return [] if same and torch.equal(raw(one), raw(other)) else [name]
    return [] if one == other else [name]


def raw(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the bytes of a tensor."""
    return tensor.detach().resolve_conj().contiguous().reshape(-1).view(torch.uint8)
