//! The conformance suite of transports: a program that each rank of a group runs, as a thread or a process.

// every test binary compiles this file and uses only a part of it
#![allow(dead_code)]

use earlybird_hier::exec::{Failure, PacketDecision, PacketHeader, Transport};

/// Packets from each rank to each other one.
const PACKETS: u32 = 200;

fn bytes_of(from: usize, to: usize, packet: u32, most: usize) -> usize {
    match packet % 8 {
        0 => 0,
        1 => 1,
        2 => most,
        3 => most - 1,
        4 => most.min(64),
        _ => (from * 7919 + to * 104_729 + packet as usize * 1_299_709) % most,
    }
}

fn byte_of(from: usize, to: usize, packet: u32, at: usize) -> u8 {
    (from * 31 + to * 17 + packet as usize * 7 + at * 13 + at / 251) as u8
}

fn head_of(from: usize, to: usize, packet: u32) -> PacketHeader {
    PacketHeader { operation: u32::MAX - packet, packet, call: (from * 1000 + to) as u64 }
}

/// Sends packet `packet` to `to`; whether there was room.
fn send<T: Transport>(transport: &mut T, to: usize, packet: u32) -> Result<bool, Failure> {
    let (me, most) = (transport.rank(), transport.packet_bytes());
    let bytes = bytes_of(me, to, packet, most);
    let mut written = false;
    let gone = transport.post_send(to, head_of(me, to, packet), bytes, |room| {
        assert_eq!(room.len(), bytes, "room for packet {packet} from {me} to {to}");
        room.iter_mut().enumerate().for_each(|(at, b)| *b = byte_of(me, to, packet, at));
        written = true;
    })?;
    assert_eq!(gone, written, "a packet is written exactly when it is sent");
    Ok(gone)
}

/// Announces packet `packet` of `from`.
fn announce<T: Transport>(transport: &mut T, from: usize, packet: u32) -> Result<(), Failure> {
    let bytes = bytes_of(from, transport.rank(), packet, transport.packet_bytes());
    transport.post_receive(from, bytes)
}

/// Looks for packet `packet` of `from`, leaving it once before it is taken.
fn receive<T: Transport>(transport: &mut T, from: usize, packet: u32) -> Result<bool, Failure> {
    let (me, most) = (transport.rank(), transport.packet_bytes());
    let check = |head: PacketHeader, payload: &[u8]| {
        assert_eq!(head, head_of(from, me, packet), "order from {from} to {me}");
        assert_eq!(payload.len(), bytes_of(from, me, packet, most), "length of packet {packet} from {from} to {me}");
        let wrong = payload.iter().enumerate().find(|(at, b)| **b != byte_of(from, me, packet, *at));
        assert_eq!(wrong, None, "contents of packet {packet} from {from} to {me}");
    };
    let mut shown = false;
    let left = transport.receive(from, |head, payload| {
        check(head, payload);
        shown = true;
        PacketDecision::Leave
    })?;
    assert!(!left, "a packet that was left counts as not taken");
    let taken = transport.receive(from, |head, payload| {
        check(head, payload);
        PacketDecision::Consume
    })?;
    // Between the two looks it may have come, but not gone; a transport with faults may hold it back.
    assert!(!taken || shown || packet < PACKETS);
    Ok(taken)
}

/// Every rank sends to every other at once; contents, lengths and order are checked at the receivers.
pub fn all_to_all<T: Transport>(transport: &mut T) -> Result<(), Failure> {
    let (me, size) = (transport.rank(), transport.size());
    let (mut sent, mut received, mut announced) = (vec![0; size], vec![0; size], vec![0; size]);
    (sent[me], received[me]) = (PACKETS, PACKETS);
    let mut passes = 0;
    while sent.iter().chain(&received).any(|n| *n < PACKETS) {
        let mut moved = false;
        for peer in (0..size).filter(|peer| *peer != me) {
            while sent[peer] < PACKETS && send(transport, peer, sent[peer])? {
                sent[peer] += 1;
                moved = true;
            }
            while announced[peer] < PACKETS.min(received[peer] + 2) {
                announce(transport, peer, announced[peer])?;
                announced[peer] += 1;
            }
            while received[peer] < PACKETS && receive(transport, peer, received[peer])? {
                received[peer] += 1;
                moved = true;
            }
        }
        passes = if moved { 0 } else { passes + 1 };
        if !moved {
            transport.progress()?;
            transport.idle(passes)?;
        }
    }
    Ok(())
}

/// Ranks 0 and 1 send to each other until they are refused and look only when both were; everything is there, and there
/// is room again. Every rank passes `barrier` twice.
pub fn a_full_lane_refuses<T: Transport>(transport: &mut T, barrier: impl Fn()) -> Result<(), Failure> {
    let me = transport.rank();
    // Earlier packets have been taken.
    barrier();
    if me > 1 {
        barrier();
        return Ok(());
    }
    let (peer, mut packets) = (1 - me, 0);
    while send(transport, peer, packets)? {
        packets += 1;
        assert!(packets < 100_000, "a lane takes packets without end");
    }
    assert!(packets > 0, "a lane that takes nothing");
    barrier();
    for packet in 0..packets {
        announce(transport, peer, packet)?;
        let mut passes = 0;
        while !receive(transport, peer, packet)? {
            passes += 1;
            transport.idle(passes)?;
        }
    }
    announce(transport, peer, packets)?;
    for receiving in [false, true] {
        let mut passes = 0;
        while !(if receiving { receive(transport, peer, packets)? } else { send(transport, peer, packets)? }) {
            passes += 1;
            transport.idle(passes)?;
        }
    }
    Ok(())
}

/// Waits for packet 0 of `from` until the group fails.
pub fn wait_for_failure<T: Transport>(transport: &mut T, from: usize) -> Failure {
    for passes in 1.. {
        let looked = transport.receive(from, |_, _| panic!("nobody sent anything"));
        if let Err(failure) = looked.and_then(|_| transport.idle(passes)) {
            return transport.raise(failure);
        }
    }
    unreachable!("the loop has no end")
}
