/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Compiles for tests the check of the programs whether a segment belongs to a connection. */
#include "caqm_window.h"

u32 weir_caqm_window_is_plausible(const struct caqm_window *window, u32 sequence, u32 acknowledgement);
u32 weir_caqm_window_may_begin(const struct caqm_window *window, u32 sequence, u32 acknowledgement);

u32 weir_caqm_window_is_plausible(const struct caqm_window *window, u32 sequence, u32 acknowledgement)
{
	return caqm_is_plausible(window, sequence, acknowledgement);
}

u32 weir_caqm_window_may_begin(const struct caqm_window *window, u32 sequence, u32 acknowledgement)
{
	return caqm_may_begin(window, sequence, acknowledgement);
}
