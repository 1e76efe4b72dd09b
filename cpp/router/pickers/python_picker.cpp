#include "router/pickers/python_picker.h"

#include "router/pickers/picker.h"

namespace spillway::router {

std::unique_ptr<Picker> make(const PythonPicker& config) {
  return config.make_policy("router.picker");
}

}  // namespace spillway::router
