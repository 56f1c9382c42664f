#!/bin/sh
# Puts our wheel into the environment of an image, says which tree it is of, and compiles it where the profile asks for that.
# Runs while an image is built, with BUILD_PROFILE and IRIS_TREE set.
set -eu

/opt/iris/bin/pip install --no-compile --no-deps --no-index /tmp/wheel/*.whl
# Where the wheel lay is no part of what was built.
rm -f /opt/iris/lib/python*/site-packages/iris_ops-*.dist-info/direct_url.json

packages=$(/opt/iris/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
printf '{"tree": "%s", "profile": "%s"}\n' "$IRIS_TREE" "$BUILD_PROFILE" > "${packages%/*}/manifest.json"

case "$BUILD_PROFILE" in
fast) ;;
# By hash, never by time: the files of an image have all the same one.
release) /opt/iris/bin/python -m compileall -q -j 0 --invalidation-mode unchecked-hash "$packages" ;;
*) echo "BUILD_PROFILE is fast or release, not $BUILD_PROFILE" >&2; exit 1 ;;
esac
