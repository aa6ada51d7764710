/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * From now on nobody can send descriptors to this unix socket (Linux 6.16; older kernels can't refuse them). Use it for
 * sockets that expect none: the reader would have to close what came, which can take as long as the sender likes
 * (SO_LINGER).
 */
void rights_refuse(int sock);
