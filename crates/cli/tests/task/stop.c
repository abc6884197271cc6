/* Stops a process that is started with this library, as SIGSTOP does: once, after it has removed
 * the file whose path ends with STOP_AFTER. */
#include "faults.h"
#include <signal.h>

int unlink(const char *path) {
    REAL(unlink);
    static int is_stopped;
    int failed = real(path);
    const char *end = getenv("STOP_AFTER");
    if (!failed && end && ends_with(path, end) && !__sync_lock_test_and_set(&is_stopped, 1)) {
        raise(SIGSTOP);
    }
    return failed;
}
