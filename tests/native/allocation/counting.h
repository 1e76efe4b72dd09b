#pragma once

#include <cstdint>

/// How often the program has allocated with `new`.
std::int64_t allocations();
