//! Messages between the nodes of a communicator: point-to-point calls of MPI on a private communicator, under the profiling names,
//! which no tool and no interposer sees.
#![allow(unsafe_code)]

use crate::abi::{self, Handle, constants, query};
use earlybird::messages::{Failure, Message, Messages};
use std::ffi::c_int;

/// A communicator for this library only, with errors as return codes.
#[derive(Debug)]
pub struct PrivateComm {
    comm: Handle,
    rank: usize,
    size: usize,
    abandoned: bool,
}

/// A message under way. MPI uses the buffer until the request is complete; if the request cannot be completed, the buffer is leaked.
#[derive(Debug)]
pub struct PendingMessage {
    request: Handle,
    buffer: Vec<u8>,
    is_receive: bool,
}

/// Room for the status of any MPI library, asserted in `abi.c`.
type Status = [u64; 8];

impl PrivateComm {
    /// Splits `comm`: the ranks of one color, ordered by key; `None` for a rank without color. Attributes of `comm` are not copied.
    /// Every rank of `comm` calls this function.
    pub fn split(comm: Handle, color_and_key: Option<(usize, usize)>) -> Result<Option<PrivateComm>, Failure> {
        let (color, key) = color_and_key.map_or((constants().undefined, 0), |(c, k)| (c as c_int, k as c_int));
        let mut own = constants().null_comm;
        // SAFETY: MPI runs and `comm` is a communicator; writes one handle.
        check("MPI_Comm_split", unsafe { abi::PMPI_Comm_split(comm, color, key, &mut own) })?;
        if color_and_key.is_none() {
            return Ok(None);
        }
        // SAFETY: MPI runs and the communicator was just made.
        check("MPI_Comm_set_errhandler", unsafe { abi::eb_return_errors(own) })?;
        let Some((rank, size)) = abi::rank_and_size(own) else {
            return check("MPI_Comm_rank", constants().err_other).map(|()| None);
        };
        Ok(Some(PrivateComm { comm: own, rank, size, abandoned: false }))
    }
}

impl Messages for PrivateComm {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    /// Any thread may call: one that is inside an MPI call may make others.
    fn may_call(&self) -> Result<(), Failure> {
        match abi::is_running() {
            true => Ok(()),
            false => Err(Failure::Transport("MPI is finalized".into())),
        }
    }

    fn send(&self, to: usize, tag: i32, buffer: Vec<u8>) -> Result<Box<dyn Message>, Failure> {
        Ok(Box::new(PendingMessage::send(self.comm, to as c_int, tag, buffer)?))
    }

    fn receive(&self, from: Option<usize>, tag: i32, buffer: Vec<u8>) -> Result<Box<dyn Message>, Failure> {
        let from = from.map_or(constants().any_source, |rank| rank as c_int);
        Ok(Box::new(PendingMessage::receive(self.comm, from, tag, buffer)?))
    }

    fn split(&self, color_and_key: Option<(usize, usize)>) -> Result<Option<Box<dyn Messages>>, Failure> {
        let part = PrivateComm::split(self.comm, color_and_key)?;
        Ok(part.map(|part| Box::new(part) as Box<dyn Messages>))
    }

    fn abandon(&mut self) {
        self.abandoned = true;
    }
}

impl Drop for PrivateComm {
    fn drop(&mut self) {
        if !self.abandoned && abi::is_running() {
            // SAFETY: MPI runs; freed once. A failure changes nothing here.
            unsafe { abi::PMPI_Comm_free(&mut self.comm) };
        }
    }
}

impl PendingMessage {
    /// Starts to send `buffer` to a rank of `comm`.
    pub fn send(comm: Handle, to: c_int, tag: c_int, buffer: Vec<u8>) -> Result<PendingMessage, Failure> {
        let mut request = constants().null_request;
        // SAFETY: MPI runs; the buffer is kept until the request is complete. Writes one handle.
        let code = unsafe {
            let (at, bytes) = (buffer.as_ptr().cast(), buffer.len() as c_int);
            abi::PMPI_Isend(at, bytes, constants().byte, to, tag, comm, &mut request)
        };
        check("MPI_Isend", code)?;
        Ok(PendingMessage { request, buffer, is_receive: false })
    }

    /// Starts to receive into `buffer` from a rank of `comm`.
    pub fn receive(comm: Handle, from: c_int, tag: c_int, mut buffer: Vec<u8>) -> Result<PendingMessage, Failure> {
        let mut request = constants().null_request;
        // SAFETY: as for `send`.
        let code = unsafe {
            let (at, bytes) = (buffer.as_mut_ptr().cast(), buffer.len() as c_int);
            abi::PMPI_Irecv(at, bytes, constants().byte, from, tag, comm, &mut request)
        };
        check("MPI_Irecv", code)?;
        Ok(PendingMessage { request, buffer, is_receive: true })
    }
}

impl Message for PendingMessage {
    fn test(&mut self) -> Result<Option<usize>, Failure> {
        let (mut done, mut status): (c_int, Status) = (0, [0; 8]);
        // SAFETY: MPI runs; the request is active, or null and then complete. Writes an int and a status.
        let code = unsafe { abi::PMPI_Test(&mut self.request, &mut done, status.as_mut_ptr().cast()) };
        check("MPI_Test", code)?;
        if done == 0 {
            return Ok(None);
        }
        if !self.is_receive {
            return Ok(Some(0));
        }
        // SAFETY: MPI_Test has filled the status of a complete receive; writes one int.
        let bytes = query(|bytes| unsafe { abi::PMPI_Get_count(status.as_ptr().cast(), constants().byte, bytes) });
        let bytes = bytes.and_then(|bytes| usize::try_from(bytes).ok()).filter(|bytes| *bytes <= self.buffer.len());
        bytes.map(Some).ok_or_else(|| Failure::Transport("MPI does not return the length of a message".into()))
    }

    fn contents(&self) -> &[u8] {
        &self.buffer
    }

    fn into_buffer(mut self: Box<Self>) -> Vec<u8> {
        std::mem::take(&mut self.buffer)
    }
}

impl Drop for PendingMessage {
    fn drop(&mut self) {
        if self.request == constants().null_request {
            return;
        }
        // SAFETY: MPI runs, or nothing is called. A receive that was cancelled completes without a sender.
        let completed = self.is_receive
            && abi::is_running()
            && unsafe {
                abi::PMPI_Cancel(&mut self.request) == 0
                    && abi::PMPI_Wait(&mut self.request, constants().ignore_status) == 0
            };
        if !completed {
            std::mem::forget(std::mem::take(&mut self.buffer));
        }
    }
}

/// Turns an error code of MPI into a failure.
fn check(call: &str, code: c_int) -> Result<(), Failure> {
    match code {
        0 => Ok(()),
        _ => Err(Failure::Transport(format!("{call} failed with code {code}"))),
    }
}
