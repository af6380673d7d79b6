//! One host: network, host name, processes, System V objects, mounts and /dev/shm of its own.
//!
//! A host is what its first process keeps alive: when that process is killed the kernel ends everything in the host.

use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use tun_rs::{DeviceBuilder, SyncDevice};

/// Name of every host's network device.
const DEVICE: &str = "eb0";

/// What the first process of a host does; `$0` is the host's name. It ends with its input. UCX finds interfaces in /sys, which
/// shows those of the namespace that mounted it.
const INIT: &str = "mount -t tmpfs -o mode=1777 tmpfs /dev/shm && mount -t sysfs sysfs /sys && hostname \"$0\" && ip link set lo up && echo ready \
                    && read -r _";

/// The network could not be built, or a command could not be run on it.
#[derive(Debug)]
pub struct Failed {
    what: String,
    why: io::Error,
}

impl Failed {
    /// `what` failed because of `why`.
    pub fn new(what: impl Into<String>, why: io::Error) -> Self {
        Failed { what: what.into(), why }
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hint = match self.why.kind() {
            io::ErrorKind::PermissionDenied => "; run as root",
            io::ErrorKind::NotFound => "; install util-linux and iproute2, and load the TUN driver",
            _ => "",
        };
        write!(f, "{}: {}{hint}", self.what, self.why)
    }
}

/// A running host. Dropping it ends every process in it.
#[derive(Debug)]
pub struct Host {
    number: u8,
    mtu: u16,
    keeper: Child,
    /// Its first process, as seen from outside.
    init: u32,
    /// The namespaces it has for itself, as options of unshare and nsenter.
    namespaces: &'static [&'static str],
}

impl Host {
    /// Starts host `number`, from 1.
    ///
    /// # Errors
    /// What the system refuses: namespaces need root.
    pub fn start(number: u8, mtu: u16) -> Result<Host, Failed> {
        Host::with(number, mtu, &["-n", "-u", "-i", "-m", "-p"])
    }

    /// Starts the host of the launcher, which shares the machine's process numbers: only from there can the other
    /// hosts be entered.
    ///
    /// # Errors
    /// As [`Host::start`].
    pub fn start_head(number: u8, mtu: u16) -> Result<Host, Failed> {
        Host::with(number, mtu, &["-n", "-u", "-i", "-m"])
    }

    fn with(number: u8, mtu: u16, namespaces: &'static [&'static str]) -> Result<Host, Failed> {
        let failed = |why| Failed::new(format!("cannot start host {number}"), why);
        let own_processes = namespaces.contains(&"-p");
        let mut unshare = Command::new("unshare");
        unshare.args(namespaces);
        if own_processes {
            unshare.args(["--fork", "--kill-child", "--mount-proc"]);
        }
        let mut keeper = unshare
            .args(["sh", "-c", INIT, &format!("ebh{number}")])
            // Never written: it ends when this process does, however that happens, and the host with it.
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let mut line = String::new();
        let ready = keeper.stdout.take().map(|out| BufReader::new(out).read_line(&mut line));
        let init = if own_processes { only_child(keeper.id()) } else { Some(keeper.id()) };
        match (ready, init) {
            (Some(Ok(_)), Some(init)) if line.trim() == "ready" => Ok(Host { number, mtu, keeper, init, namespaces }),
            _ => {
                let _ = keeper.kill();
                let _ = keeper.wait();
                Err(failed(io::Error::other("its first process ended; namespaces and mounts need root")))
            }
        }
    }

    /// Its address on the network.
    pub fn address(&self) -> String {
        format!("10.99.0.{}", self.number)
    }

    /// Gives the host its network device and returns the other end of it.
    ///
    /// # Errors
    /// What the system refuses.
    pub fn open_link(&self) -> Result<SyncDevice, Failed> {
        let failed = |why| Failed::new(format!("cannot connect host {}", self.number), why);
        // A device belongs to the namespace of the thread that makes it.
        let (init, mtu) = (self.init, self.mtu);
        let made = std::thread::spawn(move || {
            let namespace = File::open(format!("/proc/{init}/ns/net"))?;
            rustix::thread::move_into_link_name_space(
                std::os::fd::AsFd::as_fd(&namespace),
                Some(rustix::thread::LinkNameSpaceType::Network),
            )?;
            let device = DeviceBuilder::new().name(DEVICE).mtu(mtu).build_sync()?;
            device.set_nonblocking(true)?;
            Ok(device)
        });
        let device = made.join().unwrap_or_else(|_| Err(io::Error::other("the thread panicked"))).map_err(failed)?;
        let address = format!("{}/24", self.address());
        for arguments in [&["addr", "add", &address, "dev", DEVICE][..], &["link", "set", DEVICE, "up"]] {
            let status = self.enter().arg("ip").args(arguments).status().map_err(failed)?;
            if !status.success() {
                return Err(failed(io::Error::other(format!("ip {} ended with {status}", arguments.join(" ")))));
            }
        }
        Ok(device)
    }

    /// A command line that runs what is added to it inside the host, and ends it when this process ends, however that happens.
    pub fn enter(&self) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "TERM", "nsenter", "-t", &self.init.to_string()]).args(self.namespaces).arg("--");
        command
    }

    /// The same as a line of a shell script, up to the command.
    pub fn enter_line(&self) -> String {
        format!("nsenter -t {} {} --", self.init, self.namespaces.join(" "))
    }
}

fn only_child(process: u32) -> Option<u32> {
    let children = std::fs::read_to_string(format!("/proc/{process}/task/{process}/children")).ok()?;
    children.split_whitespace().next()?.parse().ok()
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.keeper.kill();
        let _ = self.keeper.wait();
    }
}
