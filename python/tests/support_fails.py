"""A test that fails, by which `package.rs` sees that failures are seen."""

from support import main, refused


def test_that_fails(comm):
    refused(ValueError, comm.Barrier)


if __name__ == "__main__":
    main(__name__)
