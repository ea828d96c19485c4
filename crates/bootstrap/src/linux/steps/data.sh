if ! findmnt --noheadings --mountpoint "$DATA" >/dev/null; then
  mount "$DATA" || fail "no file system is mounted at $DATA and none could be; install the server with an XFS partition there"
fi
kind=$(findmnt --noheadings --output FSTYPE --mountpoint "$DATA")
if [ "$kind" != xfs ]; then
  fail "the file system at $DATA is $kind, which has no project quotas; install the server with an XFS partition there"
fi

# Quotas can be switched on only by a mount from nothing, so before anything else uses the file system.
line=$(awk -v target="$DATA" '!/^[[:space:]]*#/ && $2 == target { print $1, $4; exit }' /etc/fstab)
if [ -n "$line" ]; then
  source=${line%% *}
  options=${line#* }
else
  source=UUID=$(findmnt --noheadings --output UUID --mountpoint "$DATA")
  options=defaults
fi
for option in prjquota nofail; do
  case ",$options," in
    *",$option,"*) ;;
    *) options=$options,$option ;;
  esac
done
fstab_line "$source" "$DATA" xfs "$options"
active=$(findmnt --noheadings --output OPTIONS --mountpoint "$DATA")
case ",$active," in
  *,prjquota,*) ;;
  *)
    umount "$DATA" || fail "$DATA is in use, so its quotas cannot be switched on now; restart the server and run this again"
    mount "$DATA"
    ;;
esac
active=$(findmnt --noheadings --output OPTIONS --mountpoint "$DATA")
case ",$active," in
  *,prjquota,*) ;;
  *) fail "project quotas of $DATA stay off although /etc/fstab asks for them; look at the kernel's log" ;;
esac

bind_onto() {
  folder "$3" "$1"
  folder "$3" "$2"
  fstab_line "$1" "$2" none "bind,nofail,x-systemd.requires-mounts-for=$DATA"
  if ! findmnt --noheadings --mountpoint "$2" >/dev/null; then
    if [ -n "$(ls -A "$2")" ]; then
      fail "$2 holds files and is not on $DATA; move them to $1, empty $2 and run this again"
    fi
    systemctl daemon-reload
    mount "$2"
  fi
}
bind_onto "$DATA/kubelet" /var/lib/kubelet 0750
bind_onto "$DATA/local-path-provisioner" /opt/local-path-provisioner 0755

# Images must not take the disk from the caches. Without the limit the node still works.
folder 0711 "$DATA/containerd"
if [ "$IMAGES_GIB" -gt 0 ]; then
  if [ "$(lsattr -p -d "$DATA/containerd" 2>/dev/null | awk '{ print $1 }')" != 100 ]; then
    xfs_quota -x -c "project -s -p $DATA/containerd 100" "$DATA" || echo "the images could not be put under a quota" >&2
  fi
  xfs_quota -x -c "limit -p bhard=${IMAGES_GIB}g 100" "$DATA" || echo "the quota of the images could not be set" >&2
fi
