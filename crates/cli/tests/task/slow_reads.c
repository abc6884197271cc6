/* Lets the first open for reading of a file whose path contains SLOW_BELOW take ten seconds. With
 * SLOW_EACH each of them takes so many milliseconds instead. */
#include "faults.h"

static int before_open(const char *path, int flags) {
    static int is_over;
    const char *below = getenv("SLOW_BELOW"), *each = getenv("SLOW_EACH");
    if (!below || !strstr(path, below) || (flags & O_ACCMODE) != O_RDONLY) return 0;
    if (each) {
        wait_millis(atol(each));
    } else if (!__sync_lock_test_and_set(&is_over, 1)) {
        wait_millis(10000);
    }
    return 0;
}

ON_OPEN64(before_open)
