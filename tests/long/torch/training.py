"""Training by DistributedDataParallel and FSDP2: the losses are those of one process that has all data; run by torchrun."""

import sys

import earlybird.torch
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

STEPS, BATCH = 20, 32


def model():
    torch.manual_seed(7)
    return torch.nn.Sequential(torch.nn.Linear(64, 96), torch.nn.ReLU(), torch.nn.Linear(96, 10)).double()


def batches(size):
    """The data of each step, a part per rank."""
    generator = torch.Generator(torch.get_default_device()).manual_seed(1)
    for _ in range(STEPS):
        yield [
            (torch.rand(BATCH, 64, generator=generator, dtype=torch.float64), torch.randint(10, (BATCH,), generator=generator))
            for _ in range(size)
        ]


def alone(size):
    """The losses of one process: it averages the gradients of all parts in the order of ranks."""
    net = model()
    optimizer, losses = torch.optim.SGD(net.parameters(), lr=0.1), []
    for parts in batches(size):
        gradients, step = [], []
        for inputs, labels in parts:
            optimizer.zero_grad()
            loss = cross_entropy(net(inputs), labels)
            loss.backward()
            step.append(loss.item())
            # DistributedDataParallel scales before it sums.
            gradients.append([parameter.grad * (1 / size) for parameter in net.parameters()])
        for parameter, *of_ranks in zip(net.parameters(), *gradients):
            summed = of_ranks[0].clone()
            for gradient in of_ranks[1:]:
                summed += gradient
            parameter.grad = summed
        optimizer.step()
        losses.append(step)
    return losses


class Inside(torch.autograd.Function):
    """A backward pass inside others, the outermost of which has this depth."""

    @staticmethod
    def forward(ctx, some, backward, depth):
        ctx.backward, ctx.depth = backward, depth
        return some.clone()

    @staticmethod
    def backward(ctx, gradient):
        with torch.enable_grad():
            if ctx.depth == 0:
                ctx.backward()
            else:
                Inside.apply(torch.ones((), requires_grad=True), ctx.backward, ctx.depth - 1).backward()
        return gradient, None, None


def backward_in_a_thread_of_torch(loss):
    """Goes backward in a thread that torch has made, as on a GPU: it makes one for a pass inside 60 others."""
    Inside.apply(torch.ones((), requires_grad=True), loss.backward, 60).backward()


def together(wrap, rank, size, backward=torch.Tensor.backward):
    net = wrap(model())
    optimizer, losses = torch.optim.SGD(net.parameters(), lr=0.1), []
    for parts in batches(size):
        inputs, labels = parts[rank]
        optimizer.zero_grad()
        loss = cross_entropy(net(inputs), labels)
        backward(loss)
        optimizer.step()
        losses.append(loss.item())
    everyone = [None] * size
    dist.all_gather_object(everyone, losses)
    return [list(step) for step in zip(*everyone)]


def main():
    dist.init_process_group("earlybird")
    rank, size = dist.get_rank(), dist.get_world_size()
    expected = alone(size)
    assert expected[0] != expected[-1]
    # On the host to the last bit.
    tolerance = 0 if torch.get_default_device().type == "cpu" else 1e-12
    by_ddp = together(lambda net: DistributedDataParallel(net, bucket_cap_mb=1), rank, size)
    torch.testing.assert_close(by_ddp, expected, rtol=tolerance, atol=0)
    by_thread = together(lambda net: DistributedDataParallel(net, bucket_cap_mb=1), rank, size, backward_in_a_thread_of_torch)
    torch.testing.assert_close(by_thread, expected, rtol=tolerance, atol=0)
    # Its first pass reduces in a callback at the end.
    static = together(lambda net: DistributedDataParallel(net, bucket_cap_mb=1, static_graph=True), rank, size)
    torch.testing.assert_close(static, expected, rtol=tolerance, atol=0)

    def sharded(net):
        for layer in net:
            fully_shard(layer, mesh=mesh)
        return fully_shard(net, mesh=mesh)

    mesh = torch.distributed.init_device_mesh(torch.get_default_device().type, (size,))
    by_fsdp = together(sharded, rank, size)
    torch.testing.assert_close(torch.tensor(by_fsdp), torch.tensor(expected))
    dist.destroy_process_group()
    sys.stdout.write(f"rank {rank}: losses equal\n")


if __name__ == "__main__":
    sys.exit(main())
