/* While there is a file FAIL_IF, a link to a manifest is answered as if it were made and is not, as
 * by a backend that loses what it has acknowledged. */
#include "faults.h"

int linkat(int from_directory, const char *from, int to_directory, const char *to, int flags) {
    REAL(linkat);
    const char *condition = getenv("FAIL_IF");
    if (condition && access(condition, F_OK) == 0 && strstr(to, "/generations/")) return 0;
    return real(from_directory, from, to_directory, to, flags);
}
