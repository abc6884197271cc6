/* Stops a process that is started with this library, as SIGSTOP does, once: after it has removed
 * the file whose path ends with STOP_AFTER, after it has given a file a name that contains
 * STOP_LINKED, or before it reads a file whose path contains STOP_READ and is no draft. With
 * HOLD_IF only the thread waits, as long as there is a file of that name. */
#include "faults.h"
#include <signal.h>

static void stop(void) {
    static int is_over;
    if (__sync_lock_test_and_set(&is_over, 1)) return;
    const char *condition = getenv("HOLD_IF");
    if (!condition) raise(SIGSTOP);
    while (condition && access(condition, F_OK) == 0) wait_millis(10);
}

int unlink(const char *path) {
    REAL(unlink);
    int failed = real(path);
    const char *end = getenv("STOP_AFTER");
    if (!failed && end && ends_with(path, end)) stop();
    return failed;
}

int linkat(int from_directory, const char *from, int to_directory, const char *to, int flags) {
    REAL(linkat);
    int failed = real(from_directory, from, to_directory, to, flags);
    const char *part = getenv("STOP_LINKED");
    if (!failed && part && strstr(to, part)) stop();
    return failed;
}

static int before_open(const char *path, int flags) {
    const char *part = getenv("STOP_READ");
    const char *found = part ? strstr(path, part) : NULL;
    if (found && found[strlen(part)] != '.' && (flags & O_ACCMODE) == O_RDONLY) stop();
    return 0;
}

ON_OPEN64(before_open)
