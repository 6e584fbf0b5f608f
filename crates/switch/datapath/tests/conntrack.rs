//! Tests of connection tracking, against a naive model and against expected values written by hand.

#[path = "conntrack/fragments.rs"]
mod fragments;
#[path = "conntrack/frames.rs"]
mod frames;
#[path = "conntrack/helpers.rs"]
mod helpers;
#[path = "conntrack/hostile.rs"]
mod hostile;
#[path = "conntrack/model.rs"]
mod model;
#[path = "conntrack/packets.rs"]
mod packets;
#[path = "conntrack/random.rs"]
mod random;
#[path = "conntrack/shares.rs"]
mod shares;
#[path = "conntrack/states.rs"]
mod states;
#[path = "conntrack/threads.rs"]
mod threads;
#[path = "conntrack/tracking.rs"]
mod tracking;
#[path = "conntrack/translations.rs"]
mod translations;
