/* Lets each rename to a path that contains SLOW_RENAME take 20 s, as a replacement below a durable
 * directory whose store is slow. */
#include "faults.h"

int rename(const char *from, const char *to) {
    REAL(rename);
    const char *below = getenv("SLOW_RENAME");
    if (below && strstr(to, below)) wait_millis(20000);
    return real(from, to);
}
