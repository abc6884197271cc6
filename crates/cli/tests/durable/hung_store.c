/* A file system that does not answer while there is a file HUNG_IF: to the link by which an empty
 * store is claimed, and to the lock that one process has alone, with which a store is adopted. */
#include "faults.h"
#include <sys/file.h>

static void wait_for_answer(void) {
    const char *condition = getenv("HUNG_IF");
    while (condition && access(condition, F_OK) == 0) wait_millis(10);
}

int linkat(int from, const char *old, int to, const char *new, int flags) {
    REAL(linkat);
    if (ends_with(new, "/.sanderling/owner")) wait_for_answer();
    return real(from, old, to, new, flags);
}

int flock(int file, int operation) {
    REAL(flock);
    if (operation & LOCK_EX) wait_for_answer();
    return real(file, operation);
}
