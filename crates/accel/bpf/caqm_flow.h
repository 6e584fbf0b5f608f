/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The values of CAQM's maps: src/caqm has the same layouts. */
#ifndef WEIR_ACCEL_CAQM_FLOW_H
#define WEIR_ACCEL_CAQM_FLOW_H

#include "caqm.h"

/* An offer travels as an option of TCP, or in the reserved bits of TCP's header, as in the
 * reference kernel. */
#define NEGOTIATE_OPTION 1U
#define NEGOTIATE_BITS 2U

/* Parameters, which are the same for all hosts and ports of a network. */
struct caqm_settings {
	struct caqm_params params;
	u32 tpid;
	u32 kind; /* cc_type: tags of other types are left alone */
	u32 trusts_path; /* assume that the ports support CAQM, as if a port had answered */
	u32 negotiation; /* NEGOTIATE_OPTION and NEGOTIATE_BITS */
	char algorithm[16]; /* its registered name; TCP_CA_NAME_MAX of include/net/tcp.h */
};

/* Counters of one CPU. */
struct caqm_totals {
	u64 sent_packets; /* tagged data: super-packets */
	u64 sent_segments; /* tagged data: segments on the wire */
	u64 sent_super; /* sent packets of more than one segment */
	u64 sent_answers;
	u64 heard_packets;
	u64 heard_segments;
	u64 heard_super; /* merged by GRO, or never split */
	u64 heard_answers;
	u64 negotiated;
	u64 declined; /* a rule matched, but the peer did not offer CAQM or did not tag */
	u64 gave_up; /* ends without a CAQM port on the path of their data: they use Reno */
	u64 alone; /* tags of another cc_type */
	u64 implausible; /* ignored tags: the segment cannot belong to its connection */
	u64 by_bits; /* the part of `negotiated` that was agreed by reserved bits */
};

/* The state of one negotiated connection. */
struct caqm_record {
	struct bpf_spin_lock lock;
	u32 tpid;
	struct caqm_sender sender;
	struct caqm_receiver receiver;
	/* Units of answers that the sender has not processed yet, and answers without units. */
	u32 more;
	u32 fewer;
	u32 nothing;
	u32 heard; /* tagged packets from the peer */
	u32 heard_before; /* `heard` at the last ACK */
	u32 silent; /* ACKs in a row without a tag */
	u32 heard_in_time; /* `heard` at the last timeout */
	u64 acked_us; /* time of the last ACK */
	u8 sending; /* this end uses CAQM, and sends requests */
	u8 to_answer; /* tagged data has arrived that no ACK has answered yet */
	u8 running; /* the sender's state belongs to an established connection */
	u8 state; /* enum tcp_ca_state */
	u8 goes_ahead; /* tell the peer that a port on the path of its data supports CAQM */
	u8 by_bits; /* agreed by reserved bits: the peer reads tags as the reference kernel does */
	u8 unused[2];
	/* Counts since the connection began, in bytes unless noted. */
	u64 asked;
	u64 granted;
	u64 refused;
	u64 approved; /* the part of the peer's requests that the ports granted */
	u64 denied;
	u32 sent_packets;
	u32 sent_segments;
	u32 sent_answers;
	u32 heard_packets;
	u32 heard_segments;
	u32 heard_answers;
};

/* An interface with CAQM. */
struct caqm_place {
	u64 netns; /* cookie */
	u32 ifindex;
	u32 unused;
};

/* A tag that arrived before its connection was established. */
struct caqm_first {
	u64 at_ns; /* CLOCK_MONOTONIC */
	u32 info;
	u32 sequence;
	u32 acknowledgement;
	u32 segments;
};

/* The record of a SYN with the client's bit, which lasts until the SYN-ACK answers the SYN. */
struct caqm_asked {
	u64 at_ns; /* CLOCK_MONOTONIC */
	u32 accepted; /* a rule matches: the SYN-ACK carries the server's bit */
	u32 unused;
};

/* A connecting socket that offers CAQM by reserved bits. */
struct caqm_offer {
	u32 sent; /* SYNs with the bit */
	u32 answered;
};

/* The key of a pending connection; addresses are IPv6, IPv4 is ::ffff:a.b.c.d. */
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
