//! `earlybird explain`: it tells what `bench` then sees running.

use crate::{earlybird, text};
use serde_json::Value;

fn explained(more: &[&str]) -> Value {
    let output = earlybird(&[&["explain", "--format", "json"], more].concat()).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn bench_runs_what_explain_tells() {
    for (op, nodes) in [("allreduce", "1"), ("allreduce", "2"), ("reduce", "1"), ("broadcast", "2"), ("alltoall", "2")]
    {
        let shape = ["--ranks", "4", "--nodes", nodes];
        let more = "--sizes 8,4Ki,128Ki --algorithms auto --patterns balanced --iterations 5 --format csv";
        let arguments: Vec<&str> = ["bench", op].into_iter().chain(shape).chain(more.split(' ')).collect();
        let output = earlybird(&arguments).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        let rows: Vec<csv::StringRecord> =
            csv::Reader::from_reader(&output.stdout[..]).records().map(Result::unwrap).collect();
        assert_eq!(rows.len(), 3);
        for row in rows {
            let (bytes, chosen) = (&row[2], &row[18]);
            let told = explained(&[&[op, "--bytes", bytes], &shape[..]].concat());
            assert_eq!(told["algorithm"], *chosen, "{op} of {bytes} bytes on {nodes} node(s): {told:#}");
        }
    }
}

#[test]
fn the_table_has_the_reason_and_the_runners_up() {
    let table = |arguments: &str| {
        let output = earlybird(&arguments.split(' ').collect::<Vec<_>>()).output().unwrap();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let (code, told, _) = table("explain allreduce --bytes 64Ki --ranks 12 --nodes 4 --network --cpus 2");
    assert_eq!(code, Some(0));
    for says in
        ["allreduce of 65536 bytes, 12 rank(s) on 4 node(s)", "ordinary Ethernet", "us between nodes", "instead"]
    {
        assert!(told.contains(says), "{says}: {told}");
    }
    for says in [
        "before     reduce of 65536 bytes by chain: messages of more than 8192 bytes",
        "after      broadcast of 65536 bytes by flat: messages of up to 1048576 bytes",
    ] {
        assert!(told.contains(says), "{says}: {told}");
    }
    let (_, told, _) = table("explain allreduce --bytes 64Ki --ranks 8");
    assert!(told.contains("not known: no tail of this size in EARLYBIRD_TUNE"), "{told}");
    let (_, told, _) = table("explain allreduce --bytes 2000 --ranks 12 --nodes 9,3 --cpus 16");
    let says = "before     reduce of 2000 bytes in nodes of 9 ranks by chain: messages of more than 512 bytes";
    assert!(told.contains(says), "{says}: {told}");
    let (code, _, error) = table("explain allreduce --bytes 64Ki --ranks 8 --nodes 9");
    assert!(code == Some(2) && error.contains("use 1 to 8 nodes"), "{error}");
    let (code, _, error) = table("explain sort --ranks 8");
    assert!(code == Some(2) && error.contains("allreduce"), "{error}");
}
