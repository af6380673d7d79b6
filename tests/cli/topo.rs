//! `earlybird topo`: this machine, and made-up ones with two sockets, chiplets and hardware threads.

use crate::{Scratch, earlybird, text, wait_until};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Stdio;

/// A machine to be made up.
struct Made {
    packages: usize,
    l3_per_package: usize,
    cores_per_l3: usize,
    threads: usize,
}

impl Made {
    /// Writes the tree. As Linux numbers them: first one thread of every core, then the second ones.
    fn write(&self, root: &Path) {
        let write = |path: String, text: String| {
            let path = root.join("devices/system").join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text + "\n").unwrap();
        };
        let per_package = self.l3_per_package * self.cores_per_l3;
        let cores = self.packages * per_package;
        let cpus_of = |cores_of: std::ops::Range<usize>| {
            let runs = (0..self.threads).map(|thread| match cores_of.len() {
                1 => (cores_of.start + thread * cores).to_string(),
                _ => format!("{}-{}", cores_of.start + thread * cores, cores_of.end - 1 + thread * cores),
            });
            runs.collect::<Vec<_>>().join(",")
        };
        write("cpu/online".into(), format!("0-{}", cores * self.threads - 1));
        for cpu in 0..cores * self.threads {
            let core = cpu % cores;
            let (package, l3) = (core / per_package, core / self.cores_per_l3);
            let of_package = cpus_of(package * per_package..(package + 1) * per_package);
            write(format!("cpu/cpu{cpu}/topology/physical_package_id"), package.to_string());
            write(format!("cpu/cpu{cpu}/topology/core_siblings_list"), of_package.clone());
            write(format!("cpu/cpu{cpu}/topology/thread_siblings_list"), cpus_of(core..core + 1));
            let of_l3 = cpus_of(l3 * self.cores_per_l3..(l3 + 1) * self.cores_per_l3);
            let own = cpus_of(core..core + 1);
            let caches = [
                ("1", "Data", "32K", &own),
                ("1", "Instruction", "32K", &own),
                ("2", "Unified", "1024K", &own),
                ("3", "Unified", "32768K", &of_l3),
            ];
            for (index, (level, kind, size, cpus)) in caches.into_iter().enumerate() {
                for (name, value) in [("level", level), ("type", kind), ("size", size), ("shared_cpu_list", cpus)] {
                    write(format!("cpu/cpu{cpu}/cache/index{index}/{name}"), value.to_owned());
                }
            }
            write(format!("node/node{package}/cpulist"), of_package);
            write(format!("node/node{package}/meminfo"), format!("Node {package} MemTotal:       67108864 kB"));
        }
    }

    /// The machine in the words of hwloc, with the same numbers.
    #[cfg(feature = "hwloc")]
    fn description(&self) -> String {
        let Made { packages, l3_per_package, cores_per_l3, threads } = self;
        let cores = packages * l3_per_package * cores_per_l3;
        format!(
            "pack:{packages} numa:1(memory=68719476736) l3:{l3_per_package}(size=33554432) l2:{cores_per_l3}(size=1048576) \
             l1d:1(size=32768) core:1 pu:{threads}(indexes={cores}*1:{threads}*{cores})"
        )
    }
}

fn answer(arguments: &[&str]) -> Value {
    let output = earlybird(&[&["topo", "--format", "json"], arguments].concat()).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn made_up_machines_are_read() {
    let scratch = Scratch::new("topo");
    let made = |name: &str, machine: Made| {
        let root = scratch.file(name);
        machine.write(&root);
        root.display().to_string()
    };
    let sockets = made("sockets", Made { packages: 2, l3_per_package: 1, cores_per_l3: 4, threads: 1 });
    let told = answer(&["--sysfs", &sockets]);
    let packages = json!([{"id": 0, "cpus": [0, 1, 2, 3]}, {"id": 1, "cpus": [4, 5, 6, 7]}]);
    assert_eq!(told["packages"], packages);
    assert_eq!(told["numa_domains"][1], json!({"id": 1, "memory_bytes": 64u64 << 30, "cpus": [4, 5, 6, 7]}));
    assert_eq!(told["caches"][0], json!({"level": 3, "bytes": 32 << 20, "cpus": [0, 1, 2, 3]}));
    assert_eq!((told["caches"].as_array().unwrap().len(), told["cores"].as_array().unwrap().len()), (2 + 8 + 8, 8));
    assert_eq!(told["ranks"][5], json!({"rank": 5, "cpus": [5], "packages": [1], "numa_domains": [1]}));
    assert_eq!(told["warnings"], json!([]));
    let loose = answer(&["--sysfs", &sockets, "--ranks", "9", "--bind", "none"]);
    assert_eq!(
        (&loose["ranks"][8]["packages"], &loose["warnings"]),
        (&json!([0, 1]), &json!(["9 ranks share 8 processor(s)"]))
    );

    let chiplets = made("chiplets", Made { packages: 1, l3_per_package: 4, cores_per_l3: 2, threads: 1 });
    let told = answer(&["--sysfs", &chiplets]);
    let l3: Vec<&Value> = told["caches"].as_array().unwrap().iter().filter(|cache| cache["level"] == 3).collect();
    assert_eq!((l3.len(), &l3[3]["cpus"]), (4, &json!([6, 7])));

    let smt = made("smt", Made { packages: 1, l3_per_package: 1, cores_per_l3: 2, threads: 2 });
    let told = answer(&["--sysfs", &smt]);
    assert_eq!(told["cores"], json!([{"cpus": [0, 2]}, {"cpus": [1, 3]}]));
    let shared = [
        "ranks 0,2 share processor(s) 0,2, hardware threads of one core",
        "ranks 1,3 share processor(s) 1,3, hardware threads of one core",
    ];
    assert_eq!(told["warnings"], json!(shared));
    assert_eq!(answer(&["--sysfs", &smt, "--ranks", "2"])["warnings"], json!([]));
    let table = text(&earlybird(&["topo", "--sysfs", &smt]).output().unwrap().stdout);
    for says in
        ["1 package, 1 NUMA domain, 2 cores, 4 processors; 4 allowed (0-3)", "64.0 GiB", "warning: ranks 0,2 share"]
    {
        assert!(table.contains(says), "{says}: {table}");
    }

    std::fs::write(Path::new(&smt).join("devices/system/cpu/cpu3/topology/thread_siblings_list"), "1-x").unwrap();
    let output = earlybird(&["topo", "--sysfs", &smt]).output().unwrap();
    let error = text(&output.stderr);
    assert!(output.status.code() == Some(1) && error.contains("cpu3/topology/thread_siblings_list"), "{error}");
}

/// The table and the JSON of a machine.
#[cfg(feature = "hwloc")]
fn shown(arguments: &[&str]) -> [String; 2] {
    ["table", "json"].map(|format| {
        let output = earlybird(&[&["topo", "--format", format], arguments].concat()).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        text(&output.stdout)
    })
}

#[cfg(feature = "hwloc")]
#[test]
fn hwloc_shows_the_same_machines() {
    use hwlocality::topology::{Topology, export::xml::XMLExportFlags};
    assert_eq!(shown(&["--hwloc"]), shown(&[]), "this machine");
    let scratch = Scratch::new("topo-hwloc");
    let machines = [
        ("sockets", Made { packages: 2, l3_per_package: 1, cores_per_l3: 4, threads: 1 }),
        ("chiplets", Made { packages: 1, l3_per_package: 4, cores_per_l3: 2, threads: 1 }),
        ("smt", Made { packages: 2, l3_per_package: 2, cores_per_l3: 3, threads: 2 }),
    ];
    for (name, made) in machines {
        let root = scratch.file(name);
        made.write(&root);
        let by_kernel = shown(&["--sysfs", &root.display().to_string()]);
        let description = made.description();
        let by_words = shown(&["--synthetic", &description]);
        assert_eq!(by_words, by_kernel, "{description}");
        let file = scratch.file(&format!("{name}.xml"));
        let topology = Topology::builder().from_synthetic(&description).unwrap().build().unwrap();
        std::fs::write(&file, topology.export_xml(XMLExportFlags::default()).unwrap()).unwrap();
        assert_eq!(shown(&["--xml", &file.display().to_string()]), by_kernel, "{}", file.display());
    }
    // A domain between package and cache, two to a package, and hardware threads that ranks would share.
    let [table, json] = shown(&["--synthetic", "pack:2 numa:2 l3:1 core:4 pu:2", "--ranks", "5", "--bind", "core"]);
    assert!(
        table.starts_with("2 packages, 4 NUMA domains, 16 cores, 32 processors; 32 allowed (0-31), no quota"),
        "{table}"
    );
    let told: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(told["numa_domains"][3]["cpus"], json!([24, 25, 26, 27, 28, 29, 30, 31]));
    assert_eq!(told["ranks"][4], json!({"rank": 4, "cpus": [4], "packages": [0], "numa_domains": [0]}));
    assert_eq!(told["warnings"][0], "ranks 0-1 share processor(s) 0-1, hardware threads of one core");
}

#[cfg(feature = "hwloc")]
#[test]
fn what_hwloc_cannot_take_is_refused() {
    let scratch = Scratch::new("topo-refused");
    let (junk, nowhere) =
        (scratch.file("junk.xml").display().to_string(), scratch.file("none.xml").display().to_string());
    std::fs::write(&junk, "<topology version=\"2.0\"><object type=\"Machine\"></topology>").unwrap();
    let cases: [(&[&str], i32, &str); 7] = [
        (&["--synthetic", "core:2 pack:2"], 2, "hwloc does not take \"core:2 pack:2\""),
        (&["--synthetic", "pack:two"], 2, "pack:2 numa:1 l3:1 core:4 pu:2"),
        (&["--synthetic", ""], 2, "hwloc does not take"),
        (&["--xml", &junk], 2, "lstopo FILE.xml"),
        (&["--xml", &nowhere], 1, "none.xml"),
        (&["--xml", &junk, "--sysfs", "/sys"], 2, "cannot be used with"),
        (&["--synthetic", "pu:2", "--job", "1"], 2, "--job shows a job of this machine"),
    ];
    for (arguments, code, says) in cases {
        let output = earlybird(&[&["topo"], arguments].concat()).output().unwrap();
        let error = text(&output.stderr);
        assert!(output.status.code() == Some(code) && error.contains(says), "{arguments:?}: {error}");
    }
}

#[test]
fn the_ranks_of_a_running_job_are_found() {
    let told = answer(&[]);
    let allowed = told["allowed_cpus"].clone();
    assert!(
        !told["cores"].as_array().unwrap().is_empty()
            && allowed.as_array().unwrap().len() == told["ranks"].as_array().unwrap().len()
    );
    let scratch = Scratch::new("topo-job");
    let started = scratch.file("started").display().to_string();
    let script = format!("echo x >> {started}; sleep 60");
    let mut job = earlybird(&["run", "-n", "3", "--bind", "none", "--", "sh", "-c", &script]);
    let mut job = job.stdout(Stdio::null()).spawn().unwrap();
    wait_until("all ranks run", || std::fs::read_to_string(&started).is_ok_and(|text| text.lines().count() == 3));
    let told = answer(&["--job", &job.id().to_string()]);
    let ranks = told["ranks"].as_array().unwrap();
    assert_eq!(ranks.iter().map(|rank| rank["rank"].as_u64().unwrap()).collect::<Vec<_>>(), [0, 1, 2]);
    assert!(ranks.iter().all(|rank| rank["cpus"] == allowed && rank["pid"].as_u64().is_some()), "{told:#}");
    job.kill().unwrap();
    job.wait().unwrap();
    let output = earlybird(&["topo", "--job", "1", "--sysfs", "/sys"]).output().unwrap();
    assert!(output.status.code() == Some(2) && text(&output.stderr).contains("leave out the description"));
    let output = earlybird(&["topo", "--job", "4294967295"]).output().unwrap();
    assert!(output.status.code() == Some(2) && text(&output.stderr).contains("has started no rank"));
}
