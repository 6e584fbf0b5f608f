/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Whether a tagged segment can be one of a connection's. The programs read a tag before TCP looks at its segment, and
 * TCP's checksum does not cover it: any host that knows addresses and ports could send one. So both numbers of the segment
 * have to lie where the other end's can lie (RFC 9293, 3.10.7.4, and RFC 5961, section 5). All differences are modulo
 * 2^32.
 *
 * TCP drops some segments that others overtook; their tags count here. The receiver gives each answer once.
 */
#ifndef WEIR_ACCEL_CAQM_WINDOW_H
#define WEIR_ACCEL_CAQM_WINDOW_H

#include "contract.h"

/* As the socket has it; windows in bytes, scaled already. */
struct caqm_window {
	u32 received; /* RCV.NXT */
	u32 offered; /* from there on the other end may send so much, or less */
	u32 overtaken; /* the largest window that was offered: a segment is at most so late */
	u32 acked; /* SND.UNA */
	u32 written; /* the end of what is to be sent. SND.NXT is behind what has just left, and may be answered */
	u32 granted; /* the largest window that the other end offered */
};

/* The largest window there is (RFC 7323, 2.3): two of them never meet at the back. */
#define CAQM_WIDEST (1U << 30)

CC_INLINE u32 caqm_is_between(u32 number, u32 first, u32 last)
{
	return number - first <= last - first;
}

CC_INLINE u32 caqm_is_plausible(const struct caqm_window *w, u32 sequence, u32 acknowledgement)
{
	u32 offered = (u32)cc_min(w->offered, CAQM_WIDEST);
	u32 overtaken = (u32)cc_min(w->overtaken, CAQM_WIDEST);
	u32 granted = (u32)cc_min(w->granted, CAQM_WIDEST);

	/* An unanswered probe repeats the byte before the first one that is new (RFC 9293, 3.8.4). */
	return caqm_is_between(sequence, w->received - overtaken - 1, w->received + offered) &&
	       caqm_is_between(acknowledgement, w->acked - granted, w->written);
}

/* The handshake's last segment, or data in its place: nothing but the SYN-ACK can be acknowledged by then. */
CC_INLINE u32 caqm_may_begin(const struct caqm_window *w, u32 sequence, u32 acknowledgement)
{
	u32 offered = (u32)cc_min(w->offered, CAQM_WIDEST);

	return acknowledgement == w->acked &&
	       caqm_is_between(sequence, w->received, w->received + offered);
}

#endif
