/* SPDX-License-Identifier: Apache-2.0 */
#include "kernel/rights.h"

#include <sys/socket.h>

#ifndef SO_PASSRIGHTS
enum { SO_PASSRIGHTS = 83 };
#endif

void rights_refuse(int sock)
{
    static const int no = 0;
    (void)setsockopt(sock, SOL_SOCKET, SO_PASSRIGHTS, &no, sizeof(no));
}
