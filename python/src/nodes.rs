//! Joining ranks on several nodes over TCP. The caller has exchanged their addresses by its own means, such as torch's store.

use crate::communicator::{PyCommunicator, configuration};
use crate::errors::OrException;
use crate::signals;
use earlybird::messages::{Layout, TOKEN_BYTES, TcpMessages, node_name};
use earlybird::{Communicator, Config, Error, Identity};
use pyo3::prelude::*;
use std::collections::{BTreeMap, HashMap};
use std::net::{SocketAddr, TcpListener};
use std::sync::Mutex;
use std::time::Duration;

/// A socket at which other ranks connect, once.
#[pyclass(name = "Listener", module = "earlybird._native", frozen)]
pub struct Listener {
    listener: Mutex<Option<TcpListener>>,
    #[pyo3(get)]
    address: String,
}

#[pymethods]
impl Listener {
    /// Listens at a port of its own on the interface with this address.
    #[new]
    fn new(py: Python<'_>, host: &str) -> PyResult<Self> {
        let listen = || {
            let listener = TcpListener::bind((host, 0))?;
            let address = listener.local_addr()?.to_string();
            Ok((listener, address))
        };
        let listening = listen().map_err(|error: std::io::Error| Error::system(format!("listening at {host}"), error));
        let (listener, address) = listening.or_exception(py)?;
        Ok(Listener { listener: Mutex::new(Some(listener)), address })
    }
}

/// Names the node of this process, which is that of all processes that it can share memory with.
#[pyfunction]
pub fn node(py: Python<'_>) -> PyResult<String> {
    Config::from_env().and_then(|config| node_name(config.dir.as_deref())).or_exception(py)
}

/// A rank as it described itself to the others.
#[derive(FromPyObject)]
pub struct Placement {
    /// Ranks of one node share memory; ranks of one machine share CPUs.
    #[pyo3(item)]
    node: String,
    #[pyo3(item)]
    machine: String,
    #[pyo3(item)]
    address: String,
    #[pyo3(item)]
    pid: u32,
    #[pyo3(item)]
    host: String,
}

/// The nodes of these ranks, each divided into the virtual nodes of the configuration.
fn layout(ranks: &[Placement], rank: usize, config: &Config) -> Result<Layout, Error> {
    let mut nodes: Vec<Vec<usize>> = Vec::new();
    let mut known: HashMap<(&str, usize), usize> = HashMap::new();
    for (number, placement) in ranks.iter().enumerate() {
        let virtual_node = config.ranks_per_node.as_ref().map_or(Ok(0), |each| each.node_of(number, ranks.len()))?;
        let node = *known.entry((&placement.node, virtual_node)).or_insert(nodes.len());
        if node == nodes.len() {
            nodes.push(Vec::new());
        }
        nodes[node].push(number);
    }
    let processes = ranks.iter().map(|placement| (placement.pid, placement.host.clone())).collect();
    let here = ranks.iter().filter(|other| other.machine == ranks[rank].machine).count();
    Ok(Layout { nodes, processes, here })
}

#[pymethods]
impl PyCommunicator {
    /// Joins ranks of several nodes; `ranks` is equal on all of them. `token` is a secret of theirs.
    #[staticmethod]
    #[pyo3(signature = (job, rank, ranks, listener, token, *, timeout=None, options=None))]
    #[expect(clippy::too_many_arguments, reason = "they are Python's, by name")]
    fn across_nodes(
        py: Python<'_>,
        job: &str,
        rank: usize,
        ranks: Vec<Placement>,
        listener: &Listener,
        token: [u8; TOKEN_BYTES],
        timeout: Option<f64>,
        options: Option<BTreeMap<String, String>>,
    ) -> PyResult<Self> {
        let config = configuration(timeout, options.unwrap_or_default()).or_exception(py)?;
        let identity = Identity::named(job, rank, ranks.len()).or_exception(py)?;
        let layout = layout(&ranks, rank, &config).or_exception(py)?;
        let address = |placement: &Placement| {
            let parsed = placement.address.parse::<SocketAddr>();
            parsed.map_err(|error| Error::usage(format!("{:?} is no address: {error}", placement.address)))
        };
        let addresses: Vec<SocketAddr> = ranks.iter().map(address).collect::<Result<_, _>>().or_exception(py)?;
        let listener = listener.listener.lock().ok().and_then(|mut listener| listener.take());
        let listener = listener.ok_or_else(|| Error::usage("the listener was used; make one for each communicator"));
        let listener = listener.or_exception(py)?;
        let joined = signals::wait_for(py, move || {
            let within: Option<Duration> = config.timeout;
            let messages = TcpMessages::connect(rank, &listener, &addresses, token, within)?;
            signals::interruptible(
                Communicator::builder().config(config).identity(identity).messages(layout, messages).connect()?,
            )
        });
        joined.map(PyCommunicator::of)
    }
}
