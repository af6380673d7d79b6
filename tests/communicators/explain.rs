//! Explanations name what runs: for every collective, on one node and two, under every kind of setting.

use crate::common::{Job, Player};
use earlybird::{Choice, Collective, CollectiveArgs, Communicator, Config, Counts, Error, JobShape, Op, explain};

#[test]
#[ignore = "a rank of the jobs that the other tests start"]
fn rank() {
    crate::common::play(&[("compare", compare)]);
}

const ROOT: usize = 1;

/// Makes a call of `collective` on blocks of so many elements.
fn call(comm: &Communicator, collective: Collective, elements: usize) {
    use earlybird_shm::Side;
    let (traits, is_root, all) = (collective.traits(), comm.rank() == ROOT, elements * comm.size());
    let mut send = vec![1.0f32; if traits.in_parts { all } else { elements }];
    let mut recv = vec![0.0f32; if traits.joins() { all } else { elements }];
    match collective {
        Collective::Barrier => comm.barrier().unwrap(),
        Collective::Broadcast => comm.process_at_rank(ROOT).broadcast_into(&mut send).unwrap(),
        _ => {
            send.truncate(if traits.senders == Side::All || is_root { send.len() } else { 0 });
            recv.truncate(if traits.receivers == Side::All || is_root { recv.len() } else { 0 });
            let (root, buffers) = (traits.has_root().then_some(ROOT), (&send[..], &mut recv[..]));
            comm.run(CollectiveArgs::describe(collective, root, Counts::Uniform, buffers, Op::Sum)).unwrap();
        }
    }
}

/// Compares what is explained, by the communicator and without one, with what has run.
fn compare(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    let config = Config::from_env().unwrap();
    let shape = JobShape { ranks: comm.size(), cpus: comm.allowed_cpus(), quota: None, over_network: false };
    let mut seen = Vec::new();
    for collective in Collective::PUBLIC {
        for bytes in [4, 4 << 10, 16 << 10, 128 << 10, 1 << 20] {
            let told = comm.explain(*collective, bytes).unwrap();
            assert_eq!(explain(*collective, bytes, &shape, &config).unwrap(), told);
            call(&comm, *collective, bytes / 4);
            let ran = comm.last_call().unwrap().algorithm.name();
            assert_eq!(told.algorithm, ran, "{} of {bytes} bytes: {told:?}", collective.name());
            if *collective == Collective::AllReduce {
                seen.push(format!("{ran} {}", told.because));
            }
        }
    }
    // A choice in the program counts from there on.
    comm.set_algorithm("plan:ring".parse::<Choice>().unwrap()).unwrap();
    assert_eq!(comm.explain(Collective::AllReduce, 8).unwrap().algorithm, "plan:ring");
    call(&comm, Collective::AllReduce, 2);
    assert_eq!(comm.last_call().unwrap().algorithm.name(), "plan:ring");
    player.say(seen.join("\u{1f}"));
}

/// The algorithms of allreduces of each size, and the reasons, under these variables; the same on all ranks.
fn ran(ranks: usize, variables: &[(&str, &str)]) -> Vec<String> {
    let job = variables.iter().fold(Job::new("compare", ranks), |job, (name, value)| job.var(name, value));
    let said = job.run();
    assert!(said.iter().all(|lines| *lines == said[0] && lines.len() == 1));
    said[0][0].split('\u{1f}').map(str::to_owned).collect()
}

#[test]
fn on_one_node() {
    let few = "flat messages of up to 2048 bytes";
    let many = "chain messages of more than 2048 bytes";
    assert_eq!(ran(3, &[]), [few, many, many, many, many]);
    let from = "slices folding in rank order from 524288 bytes on";
    let below = "leader folding in rank order below 524288 bytes";
    assert_eq!(ran(3, &[("EARLYBIRD_ORDER", "rank")]), [few, below, below, below, from]);
    let (from, below) = (from.replace("524288", "65536"), below.replace("524288", "65536"));
    assert_eq!(ran(4, &[("EARLYBIRD_ORDER", "rank")]), [few, &below, &below, &from, &from]);
    let all = "static-leader it was chosen for all calls (EARLYBIRD_ALGORITHM, set_algorithm)";
    assert_eq!(ran(2, &[("EARLYBIRD_ALGORITHM", "static-leader")]), [all; 5]);
    let table = "it was chosen for this size of allreduce (EARLYBIRD_ALLREDUCE and its like)";
    let told = ran(3, &[("EARLYBIRD_ALLREDUCE", "leader:0-4Ki,plan:butterfly:64Ki-")]);
    let [leader, plan] = ["leader", "plan:butterfly"].map(|name| format!("{name} {table}"));
    assert_eq!(told, [&leader, &leader, many, &plan, &plan]);
}

#[test]
fn on_several_nodes() {
    let two = ("EARLYBIRD_RANKS_PER_NODE", "2");
    let few = "plan:elimination-3-2 vectors of up to 16384 bytes between nodes that share memory";
    let many = "plan:halving-doubling vectors of more than 16384 bytes between nodes that share memory";
    assert_eq!(ran(4, &[two]), [few, few, few, many, many]);
    assert_eq!(ran(4, &[two, ("EARLYBIRD_EXCHANGE", "ring")]), ["plan:ring EARLYBIRD_EXCHANGE"; 5]);
    let chosen = "plan:direct it was chosen for all calls (EARLYBIRD_ALGORITHM, set_algorithm)";
    assert_eq!(ran(3, &[("EARLYBIRD_RANKS_PER_NODE", "2,1"), ("EARLYBIRD_ALGORITHM", "plan:direct")]), [chosen; 5]);
}

#[test]
fn by_measurements() {
    let file = std::env::temp_dir().join(format!("earlybird-explain-{}", std::process::id()));
    let text = "ranks.3.allreduce = 'leader:0-'\nbetween.messages = [[8, 1e-5], [1048576, 2e-3]]\nbetween.port = 1e-6\nbetween.reduced = 1e-10\n";
    std::fs::write(&file, text).unwrap();
    let tune = ("EARLYBIRD_TUNE", file.to_str().unwrap());
    assert_eq!(ran(3, &[tune]), ["leader it was measured to be the fastest (EARLYBIRD_TUNE)"; 5]);
    let between = ran(4, &[tune, ("EARLYBIRD_RANKS_PER_NODE", "1")]);
    assert!(between.iter().all(|told| told.ends_with("the least expected time by the costs of EARLYBIRD_TUNE")));

    // The expected time is that of the plan that runs, and no other one has less.
    let config = Config::from_env_and(
        [("EARLYBIRD_TUNE", tune.1), ("EARLYBIRD_RANKS_PER_NODE", "1")].map(|(n, v)| (n.into(), v.into())),
    );
    let job = JobShape { ranks: 4, cpus: 4, quota: None, over_network: false };
    let told = explain(Collective::AllReduce, 128 << 10, &job, &config.unwrap()).unwrap();
    let expected = told.expected_us.unwrap();
    assert!(between[3].starts_with(told.algorithm) && !told.others.is_empty());
    assert!(told.others.iter().all(|other| other.expected_us.unwrap() >= expected), "{told:?}");
    std::fs::remove_file(&file).unwrap();
}

#[test]
fn shapes_count() {
    let of = |ranks, cpus, over_network, nodes: Option<&str>| {
        let mut config = Config::default();
        config.ranks_per_node = nodes.map(|nodes| nodes.parse().unwrap());
        explain(Collective::AllReduce, 4 << 20, &JobShape { ranks, cpus, quota: None, over_network }, &config)
    };
    let alone = of(1, 1, false, None).unwrap();
    assert_eq!((alone.algorithm, alone.nodes), ("flat", 1));
    let roomy = of(8, 16, false, Some("4")).unwrap();
    assert_eq!((roomy.segments, roomy.endpoints, roomy.waiting.as_str()), (8, 4, "balanced, a processor per rank"));
    let crowded = of(8, 2, false, Some("4")).unwrap();
    assert_eq!((crowded.segments, crowded.endpoints), (2, 2));
    assert!(crowded.waiting.contains("never spinning"));
    let network = of(8, 4, true, Some("4")).unwrap();
    assert!(network.because.contains("ordinary Ethernet") && network.expected_us.is_some(), "{network:?}");
    assert_eq!(network.endpoints, 4, "each machine has a processor for each of its ranks");
    assert!(matches!(of(0, 1, false, None), Err(Error::Usage { .. })));
    assert!(matches!(of(3, 1, false, Some("2,2")), Err(Error::Usage { .. })));
}

/// The steps inside nodes as `when collective algorithm`, on nodes of these numbers of ranks.
fn inside(collective: Collective, bytes: usize, nodes: &str, algorithm: &str) -> Result<Vec<String>, Error> {
    let config = [("EARLYBIRD_RANKS_PER_NODE", nodes), ("EARLYBIRD_ALGORITHM", algorithm)];
    let config = Config::from_env_and(config.map(|(n, v)| (n.into(), v.into()))).unwrap();
    let ranks = nodes.split(',').map(|ranks| ranks.parse::<usize>().unwrap()).sum();
    let told = explain(collective, bytes, &JobShape { ranks, cpus: 32, quota: None, over_network: false }, &config)?;
    let steps = told.on_nodes.iter().map(|step| {
        // The same operation on a node that is alone has the same algorithm.
        let part = Collective::PUBLIC.iter().find(|part| part.name() == step.collective).unwrap();
        let job = JobShape { ranks: step.ranks, cpus: 32, quota: None, over_network: false };
        let alone = Config::from_env_and([("EARLYBIRD_ALGORITHM".into(), algorithm.into())]).unwrap();
        assert_eq!(explain(*part, step.bytes, &job, &alone).unwrap().algorithm, step.algorithm, "{step:?}");
        let when = if step.comes_before { "before" } else { "after" };
        format!("{when} {} of {} by {} on {}", step.collective, step.bytes, step.algorithm, step.ranks)
    });
    Ok(steps.collect())
}

#[test]
fn steps_inside_nodes() {
    // The rows of the table in docs/nodes.md for rank 0 as the root, which leads its node.
    for (collective, expected) in [
        (Collective::AllReduce, &["before reduce of 4096 by chain on 3", "after broadcast of 4096 by flat on 3"][..]),
        (Collective::Reduce, &["before reduce of 4096 by chain on 3"]),
        (Collective::Broadcast, &["before broadcast of 4096 by flat on 3", "after broadcast of 4096 by flat on 3"]),
        (Collective::Barrier, &["before barrier of 0 by flat on 3", "after barrier of 0 by flat on 3"]),
        (Collective::AllGather, &["before gather of 4096 by flat on 3", "after broadcast of 24576 by chain on 3"]),
        (Collective::Gather, &["before gather of 4096 by flat on 3"]),
        (Collective::Scatter, &["after scatter of 4096 by flat on 3"]),
        (Collective::AllToAll, &["before gather of 24576 by flat on 3", "after scatter of 24576 by flat on 3"]),
    ] {
        assert_eq!(inside(collective, 4096, "3,3", "auto").unwrap(), expected, "{}", collective.name());
    }
    let all_reduce = |bytes, nodes: &str, algorithm: &str| inside(Collective::AllReduce, bytes, nodes, algorithm);
    assert_eq!(all_reduce(4096, "1,1,1", "auto").unwrap(), [""; 0], "nobody to meet");
    assert_eq!(all_reduce(4096, "3,1", "auto").unwrap().len(), 2);
    let of_both = ["before reduce of 1000 by flat on 2", "before reduce of 1000 by chain on 9"];
    assert_eq!(all_reduce(1000, "2,9", "auto").unwrap()[..2], of_both);
    let chosen = all_reduce(1000, "3,3", "static-leader").unwrap();
    assert_eq!(chosen[0], "before reduce of 1000 by static-leader on 3");
    // Nine segments, three for each endpoint of a node, not the whole vector.
    assert_eq!(all_reduce(4 << 20, "3,3", "auto").unwrap()[1], "after broadcast of 466176 by chain on 3");
    let error = all_reduce(1 << 60, "3,3", "auto").unwrap_err();
    assert!(matches!(error, Error::Usage { .. }) && error.to_string().contains("less memory"), "{error}");
}
