# Defines Eigen3::Eigen from, in this order: Eigen3_DIR or Eigen3_ROOT, the cmeel-eigen wheel, the system's headers.
# No version is given to find_package: 3.4's version file refuses ranges that span majors, 5.x refuses "3.4".
set(_eigen_hints "")
file(GLOB _venv "${CMAKE_SOURCE_DIR}/.venv/lib/python3*/site-packages")
foreach(_prefix IN LISTS CMAKE_PREFIX_PATH _venv)
  list(APPEND _eigen_hints "${_prefix}/cmeel.prefix")
endforeach()
find_package(Eigen3 CONFIG QUIET HINTS ${_eigen_hints})
if(NOT TARGET Eigen3::Eigen)
  find_path(EIGEN3_INCLUDE_DIR Eigen/Core HINTS ${_eigen_hints} PATH_SUFFIXES eigen3 include/eigen3)
  if(NOT EIGEN3_INCLUDE_DIR)
    message(FATAL_ERROR
      "Eigen headers not found. Any one of these provides them: pip install cmeel-eigen; "
      "apt-get install libeigen3-dev; -DEigen3_ROOT=<prefix that holds include/eigen3>.")
  endif()
  add_library(Eigen3::Eigen INTERFACE IMPORTED)
  target_include_directories(Eigen3::Eigen INTERFACE "${EIGEN3_INCLUDE_DIR}")
endif()
if(DEFINED Eigen3_VERSION AND (Eigen3_VERSION VERSION_LESS 3.4 OR Eigen3_VERSION VERSION_GREATER_EQUAL 6))
  message(FATAL_ERROR "Eigen ${Eigen3_VERSION} found; 3.4 or later and before 6 is needed.")
endif()
