/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The values of CAQM's maps: src/caqm has the same layouts. */
#ifndef WEIR_ACCEL_CAQM_FLOW_H
#define WEIR_ACCEL_CAQM_FLOW_H

#include "caqm.h"

/* One for all hosts and ports of a network. */
struct caqm_settings {
	struct caqm_params params;
	u32 tpid;
	u32 kind; /* cc_type: of another one a tag is left alone */
	u32 trusts_path; /* ports are known to speak: as if they had said so */
	char algorithm[16]; /* by which name it is registered; TCP_CA_NAME_MAX of include/net/tcp.h */
};

/* What passed on one CPU. */
struct caqm_totals {
	u64 sent_packets; /* data with a tag: super-packets, ... */
	u64 sent_segments; /* ... and what they are on a wire */
	u64 sent_super; /* of more than one segment */
	u64 sent_answers;
	u64 heard_packets;
	u64 heard_segments;
	u64 heard_super; /* merged by GRO, or never cut */
	u64 heard_answers;
	u64 negotiated;
	u64 declined; /* connections that fit a rule and whose other end did not offer it, or does not tag */
	u64 gave_up; /* ends on the way of whose data no port does CAQM: those are Reno's */
	u64 alone; /* tags of another kind */
	u64 implausible; /* of segments that cannot be their connection's: without effect */
};

/* What is kept of one negotiated connection. */
struct caqm_record {
	struct bpf_spin_lock lock;
	u32 tpid;
	struct caqm_sender sender;
	struct caqm_receiver receiver;
	/* Units of answers that came and the sender was not told yet, and answers that said nothing. */
	u32 more;
	u32 fewer;
	u32 nothing;
	u32 heard; /* tagged packets of the other end's */
	u32 heard_before; /* at the last acknowledgement ... */
	u32 silent; /* ... and acknowledgements in a row without one */
	u32 heard_in_time; /* at the last timeout */
	u64 acked_us; /* when the last acknowledgement came */
	u8 sending; /* the algorithm is ours, and asks */
	u8 to_answer; /* tagged data has come that no answer was sent for */
	u8 running; /* the sender's state is that of a connection under way */
	u8 state; /* enum tcp_ca_state */
	u8 goes_ahead; /* the other end is to know that a port on the way of its data speaks */
	u8 unused[3];
	/* Since the connection began; in bytes where nothing else is said. */
	u64 asked;
	u64 granted;
	u64 refused;
	u64 approved; /* of the other end's requests, what the ports left of them */
	u64 denied;
	u32 sent_packets;
	u32 sent_segments;
	u32 sent_answers;
	u32 heard_packets;
	u32 heard_segments;
	u32 heard_answers;
};

/* Where CAQM is spoken. */
struct caqm_place {
	u64 netns; /* cookie */
	u32 ifindex;
	u32 unused;
};

/* What came before there was a connection. */
struct caqm_first {
	u64 at_ns; /* CLOCK_MONOTONIC */
	u32 info;
	u32 sequence;
	u32 acknowledgement;
	u32 unused;
};

/* A connection that is not yet one here; addresses are IPv6, IPv4 is ::ffff:a.b.c.d. */
struct caqm_pending {
	u64 netns;
	u32 remote[4]; /* all in network byte order */
	u32 local[4];
	u16 remote_port;
	u16 local_port;
	u32 unused;
};

#define CAQM "caqm"

#endif
