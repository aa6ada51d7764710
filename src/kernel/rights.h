/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * From now on nobody can send descriptors to this unix socket (Linux 6.16; older kernels can't refuse them). For one on which none are awaited: what came
 * all the same would be closed by whoever reads, and that can take as long as its owner likes (SO_LINGER).
 */
void rights_refuse(int sock);
