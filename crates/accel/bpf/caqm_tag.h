/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* CAQM's tag and its offer: crates/wire/src/caqm.rs and caqm/offer.rs define their formats. */
#ifndef WEIR_ACCEL_CAQM_TAG_H
#define WEIR_ACCEL_CAQM_TAG_H

#include "kernel.h"
#include "caqm.h"
#include <bpf/bpf_endian.h>

#define TAG_REQUEST (1U << 10)
#define TAG_CONGESTION (1U << 9)
#define TAG_VALID (1U << 8)
#define TAG_HINT 0xffU
#define TAG_GO_AHEAD (TAG_CONGESTION | TAG_VALID)
/* The same bits in an offer ask whether a port on the path supports CAQM. A port that supports
 * CAQM clears the last two bits. */
#define OFFER_QUESTION (TAG_REQUEST | TAG_CONGESTION | TAG_VALID)
/* The bit in the SYN-ACK's offer that reports that a port has answered the SYN's offer. */
#define OFFER_ECHO 1U
#define TAG_KIND_SHIFT 13

#define MAC_HEADER 14
#define TAG_BYTES 4
#define MOST_VLANS 2
#define ETHERTYPE_VLAN 0x8100
#define ETHERTYPE_SERVICE 0x88a8
#define ETHERTYPE_OLD_SERVICE 0x9100
#define ETHERTYPE_IPV4 0x0800
#define ETHERTYPE_IPV6 0x86dd
#define PROTOCOL_TCP 6
#define TCP_FIN 1U
#define TCP_SYN 2U
#define TCP_RST 4U
#define TCP_ACK 0x10U
#define TCP_ECE 0x40U
#define TCP_CWR 0x80U
/* The four bits between TCP's header length and its flags. The reference kernel's client sets the
 * first bit on its SYN, and the server the second bit on its SYN-ACK. Accurate ECN (RFC 9768) uses
 * the first bit, too: a SYN that also has ECE and CWR does not ask for CAQM. */
#define TCP_RESERVED 0x0fU
#define BIT_OF_CLIENT 1U
#define BIT_OF_SERVER 2U
#define TCP_LENGTH_AT 12
#define TCP_CHECKSUM_AT 16

/* Whether the tag of the handshake's last packet reports that a port on the path of the peer's data
 * supports CAQM, so that tags may follow. */
static __always_inline bool tag_goes_ahead(u32 info)
{
	return (info & TAG_GO_AHEAD) == TAG_GO_AHEAD;
}

/* Returns the units of an increase; 0 if the tag holds no increase. */
static __always_inline u32 tag_more(u32 info)
{
	return (info & (TAG_CONGESTION | TAG_VALID)) == TAG_VALID ? info & TAG_HINT : 0;
}

/* Whether the tag is a refusal, or a decrease in units: C without I. */
static __always_inline bool tag_fewer(u32 info)
{
	return (info & (TAG_CONGESTION | TAG_VALID)) == TAG_CONGESTION;
}

/* The parsed fields of a TCP/IP frame. */
struct tagged {
	struct bpf_sock_tuple tuple; /* as received: the source is the peer */
	u32 ipv6;
	u32 vlans; /* VLAN tags before the tag */
	u32 info;
	u32 found; /* the frame has a tag */
	u32 flags; /* flags of TCP's header; the next three fields are TCP's, too */
	u32 sequence;
	u32 acknowledgement;
	u32 payload;
	u32 transport; /* offset of TCP's header */
	u32 length_and_reserved; /* the byte of TCP's header with length and reserved bits */
};

static __always_inline bool is_vlan(u32 ether_type)
{
	return ether_type == ETHERTYPE_VLAN || ether_type == ETHERTYPE_SERVICE ||
	       ether_type == ETHERTYPE_OLD_SERVICE;
}

static __always_inline u32 load_word(struct __sk_buff *skb, u32 offset)
{
	__be16 word = 0;

	bpf_skb_load_bytes(skb, offset, &word, sizeof(word));
	return bpf_ntohs(word);
}

static __always_inline u32 word_at(const u8 *bytes)
{
	return (u32)bytes[0] << 24 | (u32)bytes[1] << 16 | (u32)bytes[2] << 8 | bytes[3];
}

/* Parses the first tag with this TPID, behind at most two VLAN tags, and TCP's header. Linux keeps
 * the outermost tag in the packet's metadata. False unless the frame is complete TCP directly over
 * IP. */
static __always_inline bool read_tagged(struct __sk_buff *skb, u32 tpid, struct tagged *frame)
{
	u32 offset = MAC_HEADER, ether_type, transport, tags = 0;
	u8 head[40], tcp[20];

	if (skb->vlan_present) {
		tags = 1;
		if (bpf_ntohs(skb->vlan_proto) == tpid) {
			frame->found = 1;
			frame->info = skb->vlan_tci;
		}
	}
	ether_type = load_word(skb, MAC_HEADER - 2);
	for (u32 step = 0; step <= MOST_VLANS; step++) {
		if (!is_vlan(ether_type) && ether_type != tpid)
			break;
		if (!frame->found && ether_type == tpid && tags <= MOST_VLANS) {
			frame->found = 1;
			frame->vlans = tags;
			frame->info = load_word(skb, offset);
		}
		ether_type = load_word(skb, offset + 2);
		offset += TAG_BYTES;
		tags++;
	}
	if (ether_type == ETHERTYPE_IPV4) {
		if (bpf_skb_load_bytes(skb, offset, head, 20))
			return false;
		/* Only the first fragment of an IP packet has ports. */
		if (head[0] >> 4 != 4 || head[9] != PROTOCOL_TCP || (head[6] & 0x3f) || head[7])
			return false;
		transport = offset + (head[0] & 15) * 4;
		__builtin_memcpy(&frame->tuple.ipv4.saddr, head + 12, 8);
	} else if (ether_type == ETHERTYPE_IPV6) {
		if (bpf_skb_load_bytes(skb, offset, head, 40))
			return false;
		if (head[0] >> 4 != 6 || head[6] != PROTOCOL_TCP)
			return false;
		transport = offset + 40;
		frame->ipv6 = 1;
		__builtin_memcpy(&frame->tuple.ipv6.saddr, head + 8, 32);
	} else {
		return false;
	}
	if (bpf_skb_load_bytes(skb, transport, tcp, sizeof(tcp)))
		return false;
	if (frame->ipv6)
		__builtin_memcpy(&frame->tuple.ipv6.sport, tcp, 4);
	else
		__builtin_memcpy(&frame->tuple.ipv4.sport, tcp, 4);
	frame->sequence = word_at(tcp + 4);
	frame->acknowledgement = word_at(tcp + 8);
	frame->flags = tcp[13];
	frame->transport = transport;
	frame->length_and_reserved = tcp[TCP_LENGTH_AT];
	transport += (tcp[12] >> 4) * 4;
	frame->payload = cc_less(skb->len, transport);
	/* Short frames are padded: use the length in the IP header, if there is one. */
	if (!skb->gso_segs || skb->gso_segs == 1) {
		u32 length = frame->ipv6 ? 40U + (head[4] << 8 | head[5]) :
					   (u32)(head[2] << 8 | head[3]);

		frame->payload = cc_min(frame->payload, cc_less(offset + length, transport));
	}
	return true;
}

/* Sets TCP's reserved bits to `bits`. */
static __always_inline void write_reserved(struct __sk_buff *skb, const struct tagged *frame,
					   u32 bits)
{
	u8 before = frame->length_and_reserved, after = (before & ~TCP_RESERVED) | bits;
	u32 flags = frame->flags;

	if (bpf_l4_csum_replace(skb, frame->transport + TCP_CHECKSUM_AT,
				bpf_htons(before << 8 | flags), bpf_htons(after << 8 | flags), 2))
		return;
	bpf_skb_store_bytes(skb, frame->transport + TCP_LENGTH_AT, &after, sizeof(after), 0);
}

#endif
