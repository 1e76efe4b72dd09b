#include "router/filters/python_filter.h"

#include "router/filters/filter.h"

namespace spillway::router {

std::unique_ptr<Filter> make(const PythonFilter& config) {
  return config.make_policy("router.filters");
}

}  // namespace spillway::router
