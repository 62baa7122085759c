// Debian's libtclcl has no 64-bit variables, which ns-2's counters of bytes want: binds their lower
// halves (on a little-endian machine).
#include "config.h"
#include "tclcl.h"

void TclObject::bind(const char* name, int64_t* value)
{
	*value = 0;
	bind(name, reinterpret_cast<int*>(value));
}

bool TclObject::delay_bind(const char* name, const char* local, const char* own, int64_t* value, TclObject* tracer)
{
	return delay_bind(name, local, own, reinterpret_cast<int*>(value), tracer);
}
