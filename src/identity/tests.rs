//! Identities from the variables that launchers were seen to set.

use super::*;
use crate::test_support::usage;

type Vars = Vec<(&'static str, String)>;

fn vars(list: &[(&'static str, &str)]) -> Vars {
    list.iter().map(|(name, value)| (*name, value.to_string())).collect()
}

fn with(vars: &Vars) -> Result<Identity, Error> {
    let lookup = |name: &str| vars.iter().rev().find(|(n, _)| *n == name).map(|(_, value)| value.clone());
    let starter = |marker: &str| {
        assert!(marker.is_empty() || lookup(marker).is_some(), "asked for the starter by {marker}, which is not set");
        Ok(Process { pid: if marker.is_empty() { 1000 } else { 900 }, start_ticks: 12345 })
    };
    Identity::from_vars(lookup, starter)
}

/// The same job as another rank sees it.
fn changed(vars: &Vars, changes: &[(&'static str, &str)]) -> Vars {
    vars.iter().cloned().chain(changes.iter().map(|(n, v)| (*n, v.to_string()))).collect()
}

fn without(vars: &Vars, name: &str) -> Vars {
    vars.iter().filter(|(n, _)| *n != name).cloned().collect()
}

fn earlybird() -> Vars {
    vars(&[("EARLYBIRD_RANK", "1"), ("EARLYBIRD_SIZE", "2"), ("EARLYBIRD_JOB", "f00d")])
}

/// Open MPI 4.1.4, `mpirun -np 2 env`.
fn open_mpi_4() -> Vars {
    vars(&[
        ("OMPI_COMM_WORLD_RANK", "1"),
        ("OMPI_COMM_WORLD_SIZE", "2"),
        ("OMPI_COMM_WORLD_LOCAL_RANK", "1"),
        ("OMPI_COMM_WORLD_LOCAL_SIZE", "2"),
        ("OMPI_MCA_ess_base_jobid", "1592655873"),
        ("PMIX_NAMESPACE", "1592655873"),
        ("PMIX_RANK", "1"),
    ])
}

/// Open MPI 5.0, the same.
fn open_mpi_5() -> Vars {
    let vars = changed(&open_mpi_4(), &[("PMIX_NAMESPACE", "prterun-vm-17559@1")]);
    without(&vars, "OMPI_MCA_ess_base_jobid")
}

/// MPICH 4.0 and 5.0, `mpirun -np 2 env`.
fn mpich() -> Vars {
    vars(&[("PMI_RANK", "1"), ("PMI_SIZE", "2"), ("PMI_FD", "8"), ("MPI_LOCALNRANKS", "2"), ("MPI_LOCALRANKID", "1")])
}

/// Intel MPI 2021, `mpiexec.hydra -np 2 env`.
fn intel_mpi() -> Vars {
    changed(&mpich(), &[("I_MPI_HYDRA_UUID", "ee440000-474d-2eb6-b360-0600fee44c2f")])
}

/// SLURM 22.05.8, `srun -n 2 env`, but SLURM_NTASKS as that of an allocation with more tasks than the step.
fn slurm() -> Vars {
    vars(&[
        ("SLURM_JOB_ID", "4711"),
        ("SLURM_STEP_ID", "0"),
        ("SLURM_PROCID", "1"),
        ("SLURM_NTASKS", "8"),
        ("SLURM_STEP_NUM_TASKS", "2"),
        ("SLURM_STEP_NUM_NODES", "1"),
    ])
}

/// From the documentation of torchrun.
fn torchrun() -> Vars {
    vars(&[
        ("RANK", "1"),
        ("WORLD_SIZE", "2"),
        ("LOCAL_RANK", "1"),
        ("LOCAL_WORLD_SIZE", "2"),
        ("MASTER_ADDR", "127.0.0.1"),
        ("MASTER_PORT", "29500"),
        ("TORCHELASTIC_RUN_ID", "none"),
        ("TORCHELASTIC_RESTART_COUNT", "0"),
    ])
}

/// Every launcher: its variables, its name, the variable of the rank, and what another job has different.
fn launchers() -> Vec<(Vars, Launcher, &'static str, &'static str)> {
    vec![
        (earlybird(), Launcher::Earlybird, "EARLYBIRD_RANK", "EARLYBIRD_JOB"),
        (open_mpi_4(), Launcher::OpenMpi, "OMPI_COMM_WORLD_RANK", "PMIX_NAMESPACE"),
        (open_mpi_5(), Launcher::OpenMpi, "OMPI_COMM_WORLD_RANK", "PMIX_NAMESPACE"),
        (intel_mpi(), Launcher::Pmi, "PMI_RANK", "I_MPI_HYDRA_UUID"),
        (slurm(), Launcher::Slurm, "SLURM_PROCID", "SLURM_STEP_ID"),
        (torchrun(), Launcher::Torchrun, "RANK", "TORCHELASTIC_RESTART_COUNT"),
    ]
}

#[test]
fn every_launcher_is_recognised_and_its_ranks_share_one_key() {
    for (vars, launcher, rank_name, job_name) in launchers() {
        let one = with(&vars).unwrap();
        assert_eq!((one.rank, one.size, one.launcher), (1, 2, launcher));
        let zero = with(&changed(&vars, &[(rank_name, "0")])).unwrap();
        assert_eq!((zero.rank, &zero.key), (0, &one.key));
        let later = with(&changed(&vars, &[(job_name, "77")])).unwrap();
        assert_ne!(later.key, one.key, "{job_name} tells two jobs apart");
    }
    let hydra = with(&mpich()).unwrap();
    assert_eq!((hydra.rank, hydra.size, hydra.launcher), (1, 2, Launcher::Pmi));
    assert!(hydra.key.contains("900.12345"), "{}", hydra.key);
}

#[test]
fn ranks_of_one_launcher_share_a_key_whatever_they_call_their_job() {
    let launched = changed(&earlybird(), &[("EARLYBIRD_LAUNCHER", "beef")]);
    let one = with(&launched).unwrap();
    let other = with(&changed(&launched, &[("EARLYBIRD_JOB", "mine"), ("EARLYBIRD_RANK", "0")])).unwrap();
    assert_eq!((&one.key, &other.key), (&Identity::launched_key("beef"), &one.key));
    assert_ne!(with(&changed(&launched, &[("EARLYBIRD_LAUNCHER", "dead")])).unwrap().key, one.key);
}

#[test]
fn without_a_launcher_the_process_is_a_job_of_its_own() {
    let alone = with(&vars(&[("PATH", "/bin"), ("RANK", "3"), ("SLURM_JOB_ID", "1"), ("SLURM_NTASKS", "8")])).unwrap();
    let expected = Identity { rank: 0, size: 1, key: "alone-1000.12345".into(), launcher: Launcher::Alone };
    assert_eq!(alone, expected);
    let detected = Identity::from_vars(|_| None, ancestry::starter).unwrap();
    assert!(detected.key.starts_with(&format!("alone-{}.", std::process::id())), "{}", detected.key);
}

#[test]
fn a_missing_variable_is_named() {
    for (vars, names) in [
        (earlybird(), &["EARLYBIRD_RANK", "EARLYBIRD_SIZE", "EARLYBIRD_JOB"][..]),
        (
            open_mpi_5(),
            &["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "PMIX_NAMESPACE"],
        ),
        (mpich(), &["PMI_SIZE", "MPI_LOCALNRANKS"]),
        (slurm(), &["SLURM_JOB_ID", "SLURM_STEP_NUM_NODES"]),
        (torchrun(), &["RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"]),
    ] {
        for name in names {
            let message = usage(with(&without(&vars, name)));
            assert!(message.contains(name), "without {name}: {message}");
        }
    }
}

#[test]
fn what_is_not_a_number_or_contradicts_is_named() {
    for (vars, _, rank_name, _) in launchers() {
        for value in ["", "x", "-1", "+1", "1.0", " 1", "99999999999999999999999"] {
            let message = usage(with(&changed(&vars, &[(rank_name, value)])));
            assert!(message.contains(rank_name), "{rank_name}={value:?}: {message}");
        }
        let message = usage(with(&changed(&vars, &[(rank_name, "2")])));
        assert!(message.contains(rank_name) && message.contains("contradict"), "{message}");
    }
    let message = usage(with(&changed(&earlybird(), &[("EARLYBIRD_RANK", "0"), ("EARLYBIRD_SIZE", "0")])));
    assert!(message.contains("EARLYBIRD_SIZE=0"), "{message}");
}

#[test]
fn ranks_on_other_nodes_are_refused_with_what_to_do() {
    for (vars, name, value) in [
        (open_mpi_4(), "OMPI_COMM_WORLD_LOCAL_SIZE", "1"),
        (mpich(), "MPI_LOCALNRANKS", "1"),
        (slurm(), "SLURM_STEP_NUM_NODES", "2"),
        (torchrun(), "LOCAL_WORLD_SIZE", "1"),
    ] {
        match with(&changed(&vars, &[(name, value)])) {
            Err(Error::Unsupported { what, hint }) => {
                assert!(what.contains(name) && hint.contains("single node"), "{what}; {hint}")
            }
            other => panic!("{name}={value} gave {other:?}"),
        }
    }
}

#[test]
fn a_slurm_batch_script_or_shell_is_not_a_rank() {
    for step in ["4294967290", "4294967291", "4294967292", ""] {
        assert_eq!(with(&changed(&slurm(), &[("SLURM_STEP_ID", step)])).unwrap().launcher, Launcher::Alone);
    }
    assert_eq!(with(&without(&slurm(), "SLURM_STEP_ID")).unwrap().launcher, Launcher::Alone);
}

#[test]
fn the_innermost_launcher_counts() {
    let inside = |outer: Vars, inner: Vars| with(&outer.into_iter().chain(inner).collect()).unwrap().launcher;
    assert_eq!(inside(slurm(), open_mpi_5()), Launcher::OpenMpi);
    assert_eq!(inside(slurm(), intel_mpi()), Launcher::Pmi);
    assert_eq!(inside(slurm(), torchrun()), Launcher::Torchrun);
    assert_eq!(inside(open_mpi_4(), torchrun()), Launcher::Torchrun);
    assert_eq!(inside(slurm(), earlybird()), Launcher::Earlybird);
}

#[test]
fn slurm_with_a_process_manager_knows_its_nodes_from_slurm() {
    let pmi = changed(&without(&mpich(), "MPI_LOCALNRANKS"), &[("PMI_JOBID", "4711.0")]);
    let both: Vars = slurm().into_iter().chain(pmi.clone()).collect();
    assert_eq!(with(&both).unwrap().size, 2);
    assert!(matches!(with(&changed(&both, &[("SLURM_STEP_NUM_NODES", "2")])), Err(Error::Unsupported { .. })));
}

#[test]
fn torchrun_variables_set_by_hand_count_as_a_pair() {
    let by_hand = without(&without(&torchrun(), "TORCHELASTIC_RUN_ID"), "TORCHELASTIC_RESTART_COUNT");
    assert_eq!(with(&by_hand).unwrap().launcher, Launcher::Torchrun);
    assert_eq!(with(&without(&by_hand, "WORLD_SIZE")).unwrap().launcher, Launcher::Alone);
}

#[test]
fn a_launcher_that_hides_the_size_is_refused() {
    let hidden = vars(&[("PMIX_RANK", "1"), ("PMIX_NAMESPACE", "prterun-vm-1@1")]);
    assert!(matches!(with(&hidden), Err(Error::Unsupported { hint, .. }) if hint.contains("EARLYBIRD_RANK")));
}

#[test]
fn keys_are_fit_for_file_names_and_stay_different() {
    let keys = ["a/b", "a_b", "a-b", "a=2fb", "../..", "a b", "é", &"x".repeat(500), &format!("{}y", "x".repeat(499))]
        .map(|job| with(&changed(&earlybird(), &[("EARLYBIRD_JOB", job)])).unwrap().key);
    for (i, key) in keys.iter().enumerate() {
        assert!(key.len() <= 160 && key.starts_with("eb-"), "{key}");
        assert!(key.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._=".contains(&b)), "{key}");
        assert!(!keys[..i].contains(key), "{key}");
    }
    assert_ne!(key(&["a", "b"]), key(&["a-b"]));
}

#[test]
fn a_named_job_has_a_key_of_its_own() {
    let named = |job, rank, size| Identity::named(job, rank, size);
    let of = |job| named(job, 1, 3).unwrap();
    assert_eq!((of("my job/7").rank, of("my job/7").size, of("x").launcher), (1, 3, Launcher::Named));
    assert!(of("my job/7").key == "named-my=20job=2f7" && of("a").key != of("b").key, "{}", of("my job/7").key);
    for (job, rank, size, why) in
        [("", 0, 1, "has no name"), ("x", 3, 3, "among 3 ranks"), ("x", 0, 0, "among 0 ranks")]
    {
        assert!(usage(named(job, rank, size)).contains(why));
    }
}
