/* Lets the first rename to a path that ends with LOST_AT fail after it has taken effect, as if the
 * answer of a backend were lost. */
#include "faults.h"

int rename(const char *from, const char *to) {
    REAL(rename);
    static int is_lost;
    int failed = real(from, to);
    const char *end = getenv("LOST_AT");
    if (!failed && end && ends_with(to, end) && !__sync_lock_test_and_set(&is_lost, 1)) {
        errno = EIO;
        return -1;
    }
    return failed;
}
