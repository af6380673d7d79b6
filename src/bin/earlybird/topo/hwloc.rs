//! A machine as the hwloc library describes it: this one, one made up of a few words, or one from a file of `lstopo`.

use super::machine::{Cache, Core, Domain, Machine, Package, Parts};
use earlybird::Error;
use hwlocality::object::TopologyObject;
use hwlocality::object::attributes::ObjectAttributes;
use hwlocality::object::types::ObjectType;
use hwlocality::topology::Topology;
use hwlocality::topology::builder::{BuildFlags, TopologyBuilder};
use std::path::Path;

/// Data and unified caches by their levels, from 1.
const CACHES: [ObjectType; 5] =
    [ObjectType::L1Cache, ObjectType::L2Cache, ObjectType::L3Cache, ObjectType::L4Cache, ObjectType::L5Cache];

/// Reads this machine, or the one that hwloc's own variables name, and tells whether it is this one.
///
/// # Errors
/// [`Error::System`] if hwloc does not understand it.
pub fn native() -> Result<(Machine, bool), Error> {
    load(Topology::builder(), || "asking hwloc about this machine".into())
}

/// Makes up the machine of a synthetic description.
///
/// # Errors
/// [`Error::Usage`] for a description that hwloc does not take.
pub fn synthetic(description: &str) -> Result<(Machine, bool), Error> {
    let refused = || {
        Error::usage(format!(
            "hwloc does not take {description:?} for a machine; describe one from its packages to its processors, as in \"pack:2 numa:1 l3:1 core:4 pu:2\" (man hwloc, \"Synthetic topologies\")"
        ))
    };
    let builder = Topology::builder().from_synthetic(description).map_err(|_| refused())?;
    load(builder, String::new).map_err(|_| refused())
}

/// Reads the machine in an XML file that `lstopo FILE.xml` or hwloc has written.
///
/// # Errors
/// [`Error::System`] for a file that cannot be read; [`Error::Usage`] for one that hwloc does not take.
pub fn xml(path: &Path) -> Result<(Machine, bool), Error> {
    let about = || format!("reading {}", path.display());
    let text = std::fs::read_to_string(path).map_err(|error| Error::system(about(), error))?;
    let refused = || {
        Error::usage(format!(
            "hwloc does not take {} for a machine; make such a file by lstopo FILE.xml",
            path.display()
        ))
    };
    let builder = Topology::builder().from_xml(&text).map_err(|_| refused())?;
    load(builder, about).map_err(|_| refused())
}

/// The machine, and whether it is this one. Processors that this process may not use count as others.
fn load(builder: TopologyBuilder, about: impl Fn() -> String) -> Result<(Machine, bool), Error> {
    let with_all = builder.with_flags(BuildFlags::INCLUDE_DISALLOWED).map_err(|error| Error::system(about(), error))?;
    let topology = with_all.build().map_err(|error| Error::system(about(), error))?;
    Ok((machine(&topology), topology.is_this_system()))
}

fn machine(topology: &Topology) -> Machine {
    let all = |kind: ObjectType| topology.objects_with_type(kind);
    let id = |object: &TopologyObject| object.os_index().unwrap_or_else(|| object.logical_index());
    let mut parts = Parts::default();
    parts.packages.extend(all(ObjectType::Package).map(|object| Package { id: id(object), cpus: cpus(object) }));
    parts.cores.extend(all(ObjectType::Core).map(|object| Core { cpus: cpus(object) }));
    if parts.cores.is_empty() {
        // A description may leave cores out.
        parts.cores.extend(all(ObjectType::PU).map(|object| Core { cpus: cpus(object) }));
    }
    parts.numa_domains.extend(all(ObjectType::NUMANode).map(|object| {
        let memory_bytes = match object.attributes() {
            Some(ObjectAttributes::NUMANode(domain)) => domain.local_memory().map_or(0, |bytes| bytes.get()),
            _ => 0,
        };
        Domain { id: id(object), memory_bytes, cpus: cpus(object) }
    }));
    for (kind, level) in CACHES.into_iter().zip(1..) {
        parts.caches.extend(all(kind).map(|object| {
            let bytes = match object.attributes() {
                Some(ObjectAttributes::Cache(cache)) => cache.size().map_or(0, |bytes| bytes.get()),
                _ => 0,
            };
            Cache { level, bytes, cpus: cpus(object) }
        }));
    }
    Machine::of(parts)
}

/// Processors of an object by the numbers of the operating system.
fn cpus(object: &TopologyObject) -> Vec<usize> {
    object.cpuset().map_or_else(Vec::new, |cpus| cpus.iter_set().map(usize::from).collect())
}
